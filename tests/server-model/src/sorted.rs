//! [`SortedSet`]: members sorted by score, and their commands.

use crate::Reply;
use crate::data::{Data, Outcome, integer, syntax_error};
use crate::keyspace::Value;

/// The members, sorted by score, then by name.
#[derive(Default)]
pub(crate) struct SortedSet(Vec<(f64, Vec<u8>)>);

impl SortedSet {
    pub(crate) fn members(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.iter().map(|(_, member)| member.as_slice())
    }

    pub(crate) fn scores(&self) -> Vec<f64> {
        self.0.iter().map(|(score, _)| *score).collect()
    }

    /// The least distance between the scores of two neighbours.
    pub(crate) fn least_gap(&self) -> Option<f64> {
        self.0.iter().zip(self.0.iter().skip(1)).map(|(one, next)| next.0 - one.0).min_by(f64::total_cmp)
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        self.0.iter().find(|(_, known)| known == member).map(|(score, _)| *score)
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, known)| known != member);
        self.0.len() < before
    }

    fn insert(&mut self, score: f64, member: &[u8]) {
        self.remove(member);
        let place = self.0.partition_point(|(other, known)| (*other, known.as_slice()) < (score, member));
        self.0.insert(place, (score, member.to_vec()));
    }
}

/// One end of a range of scores.
#[derive(Clone, Copy)]
struct Bound {
    score: f64,
    is_excluded: bool,
}

impl Bound {
    fn read(word: &[u8]) -> Result<Self, Reply> {
        let (is_excluded, number) = match word {
            [b'(', number @ ..] => (true, number),
            number => (false, number),
        };
        let score = match number.to_ascii_lowercase().as_slice() {
            b"-inf" => Some(f64::NEG_INFINITY),
            b"+inf" | b"inf" => Some(f64::INFINITY),
            number => std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()),
        };
        let score = score.ok_or_else(|| Reply::error("ERR min or max is not a float"))?;
        Ok(Self { score, is_excluded })
    }

    fn is_below(self, score: f64) -> bool {
        self.score < score || (self.score <= score && !self.is_excluded)
    }

    fn is_above(self, score: f64) -> bool {
        self.score > score || (self.score >= score && !self.is_excluded)
    }
}

/// A score in the server's format.
fn shown(score: f64) -> Reply {
    Reply::bulk(score.to_string())
}

impl Data {
    pub(crate) fn sorted(&self, key: &[u8]) -> Result<Option<&SortedSet>, Reply> {
        match self.keys.get(key).map(|slot| &slot.value) {
            Some(Value::Sorted(sorted)) => Ok(Some(sorted)),
            Some(_) => Err(crate::data::wrong_type()),
            None => Ok(None),
        }
    }

    /// Changes a sorted set, and removes it if it is empty then.
    fn change_sorted<T: Default>(&mut self, key: &[u8], change: impl FnOnce(&mut SortedSet) -> T) -> Result<T, Reply> {
        let sorted = match self.keys.value_mut(key) {
            Some(Value::Sorted(sorted)) => sorted,
            Some(_) => return Err(crate::data::wrong_type()),
            None => return Ok(T::default()),
        };
        let changed = change(sorted);
        if sorted.0.is_empty() {
            self.keys.remove(key);
        }
        Ok(changed)
    }

    /// Supports one member, with `XX GT` or without options.
    pub(crate) fn zadd(&mut self, key: &[u8], words: &[&[u8]]) -> Outcome {
        let (only_greater, score, member) = match words {
            [xx, gt, score, member] if xx.eq_ignore_ascii_case(b"XX") && gt.eq_ignore_ascii_case(b"GT") => {
                (true, score, member)
            }
            [score, member] => (false, score, member),
            _ => return Err(syntax_error()),
        };
        let score = std::str::from_utf8(score).ok().and_then(|score| score.parse::<f64>().ok());
        let score = score.ok_or_else(|| Reply::error("ERR value is not a valid float"))?;
        if self.sorted(key)?.is_none() {
            if only_greater {
                return Ok(Reply::count(0));
            }
            self.keys.set(key, Value::Sorted(SortedSet::default()), None);
        }
        let is_new = self.change_sorted(key, |sorted| {
            let before = sorted.score(member);
            if !only_greater || before.is_some_and(|before| score > before) {
                sorted.insert(score, member);
            }
            before.is_none() && !only_greater
        })?;
        Ok(Reply::count(usize::from(is_new)))
    }

    pub(crate) fn zrem(&mut self, key: &[u8], members: &[&[u8]]) -> Outcome {
        let remove = |sorted: &mut SortedSet| members.iter().filter(|member| sorted.remove(member)).count();
        Ok(Reply::count(self.change_sorted(key, remove)?))
    }

    pub(crate) fn zremrangebyscore(&mut self, key: &[u8], min: &[u8], max: &[u8]) -> Outcome {
        let (min, max) = (Bound::read(min)?, Bound::read(max)?);
        let remove = |sorted: &mut SortedSet| {
            let before = sorted.0.len();
            sorted.0.retain(|(score, _)| !(min.is_below(*score) && max.is_above(*score)));
            before - sorted.0.len()
        };
        Ok(Reply::count(self.change_sorted(key, remove)?))
    }

    pub(crate) fn zcard(&self, key: &[u8]) -> Outcome {
        Ok(Reply::count(self.sorted(key)?.map_or(0, |sorted| sorted.0.len())))
    }

    /// Removes the first member, and returns it with its score.
    pub(crate) fn zpopmin(&mut self, key: &[u8]) -> Outcome {
        let take = |sorted: &mut SortedSet| (!sorted.0.is_empty()).then(|| sorted.0.remove(0));
        let taken = self.change_sorted(key, take)?;
        let items = taken.map_or_else(Vec::new, |(score, member)| vec![Reply::Bulk(member), shown(score)]);
        Ok(Reply::Array(items))
    }

    pub(crate) fn zscore(&self, key: &[u8], member: &[u8]) -> Outcome {
        Ok(self.sorted(key)?.and_then(|sorted| sorted.score(member)).map_or(Reply::Nil, shown))
    }

    /// Supports ranges by index, with or without scores, and ranges by score with a limit.
    pub(crate) fn zrange(&self, key: &[u8], first: &[u8], last: &[u8], options: &[&[u8]]) -> Outcome {
        let options: Vec<Vec<u8>> = options.iter().map(|option| option.to_ascii_uppercase()).collect();
        let options: Vec<&[u8]> = options.iter().map(Vec::as_slice).collect();
        let all = || Ok::<_, Reply>(self.sorted(key)?.map_or(&[][..], |sorted| &sorted.0));
        match options.as_slice() {
            [] | [b"WITHSCORES"] => {
                let (first, last) = (integer(first)?, integer(last)?);
                let all = all()?;
                let items = places(all, first, last).flat_map(|(score, member)| {
                    let score = (!options.is_empty()).then(|| shown(*score));
                    std::iter::once(Reply::bulk(member)).chain(score)
                });
                Ok(Reply::Array(items.collect()))
            }
            [b"BYSCORE", b"LIMIT", from, count] => {
                let (min, max) = (Bound::read(first)?, Bound::read(last)?);
                let (from, count) = (integer(from)?, integer(count)?);
                let (from, count) = (usize::try_from(from).unwrap_or(0), usize::try_from(count).unwrap_or(usize::MAX));
                let between = all()?.iter().filter(|(score, _)| min.is_below(*score) && max.is_above(*score));
                Ok(Reply::Array(between.skip(from).take(count).map(|(_, member)| Reply::bulk(member)).collect()))
            }
            _ => Err(syntax_error()),
        }
    }
}

/// The items between two indexes; a negative index counts from the end.
fn places<T>(items: &[T], first: i64, last: i64) -> impl Iterator<Item = &T> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let index = |at: i64| usize::try_from(if at < 0 { at + length } else { at }.clamp(0, length)).unwrap_or_default();
    let end = if last < -length { 0 } else { index(last) + 1 };
    items.iter().take(end).skip(index(first))
}
