//! The commands that scripts may call, too: on keys, channels and the clock.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::Reply;
use crate::channels::Channels;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::keyspace::{Keyspace, Millis, Slot, Value};
use crate::tracking::Tracking;

/// The data of the commands.
#[derive(Default)]
pub(crate) struct Data {
    pub(crate) keys: Keyspace,
    pub(crate) channels: Channels,
    pub(crate) clock: Clock,
    pub(crate) tracking: Tracking,
    pub(crate) cluster: Cluster,
    /// The run id of the server process.
    pub(crate) run_id: String,
    /// The name of the command that compares and deletes, if there is one.
    pub(crate) delete: Option<&'static str>,
    /// The largest number of bytes of a string that a command has read.
    pub(crate) largest_read: Cell<usize>,
}

/// Why a command was not executed; clients and scripts get different texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Unknown,
    WrongCount,
}

/// The reply in an `Err` is an error, which ends the command early.
pub(crate) type Outcome = Result<Reply, Reply>;

type List = VecDeque<Vec<u8>>;

const NAMES: [&[u8]; 35] = [
    b"DEL",
    b"ECHO",
    b"EXISTS",
    b"FLUSHALL",
    b"GET",
    b"GETRANGE",
    b"INFO",
    b"LINDEX",
    b"LLEN",
    b"LPOP",
    b"LPOS",
    b"LPUSH",
    b"LRANGE",
    b"LREM",
    b"MGET",
    b"PERSIST",
    b"PEXPIRE",
    b"PEXPIREAT",
    b"PING",
    b"PTTL",
    b"PUBLISH",
    b"RPOP",
    b"RPUSH",
    b"SET",
    b"SPUBLISH",
    b"STRLEN",
    b"TIME",
    b"TYPE",
    b"ZADD",
    b"ZCARD",
    b"ZPOPMIN",
    b"ZRANGE",
    b"ZREM",
    b"ZREMRANGEBYSCORE",
    b"ZSCORE",
];

fn is_name(name: &[u8]) -> bool {
    NAMES.contains(&name)
}

impl Data {
    /// Sets the time to `micros`.
    pub(crate) fn begin(&mut self, micros: u64) {
        self.clock.begin(micros);
        self.keys.expire(self.now());
        self.tell_changes();
    }

    fn now(&self) -> Millis {
        self.clock.millis()
    }

    /// `name` is in capitals.
    pub(crate) fn execute(&mut self, name: &[u8], arguments: &[&[u8]]) -> Result<Reply, Refusal> {
        let outcome = match (name, arguments) {
            (b"GET", [key]) => self.get(key),
            (b"GETRANGE", [key, first, last]) => self.getrange(key, first, last),
            (b"MGET", keys @ [_, ..]) => {
                Ok(Reply::Array(keys.iter().map(|key| self.get(key).unwrap_or(Reply::Nil)).collect()))
            }
            (b"SET", [key, value, options @ ..]) => self.set(key, value, options),
            (b"DEL", keys @ [_, ..]) => Ok(Reply::count(keys.iter().filter(|key| self.keys.remove(key)).count())),
            (b"DELIFEQ", [key, value]) | (b"DELEX", [key, b"IFEQ", value]) if self.has_delete(name) => {
                self.delete_if_equal(key, value)
            }
            (b"EXISTS", keys @ [_, ..]) => {
                Ok(Reply::count(keys.iter().filter(|key| self.keys.get(key).is_some()).count()))
            }
            (b"STRLEN", [key]) => self.text(key).map(|text| Reply::count(text.map_or(0, <[u8]>::len))),
            (b"TYPE", [key]) => Ok(Reply::Simple(type_of(self.keys.get(key)).to_owned())),
            (b"PTTL", [key]) => Ok(self.pttl(key)),
            (b"PERSIST", [key]) => Ok(Reply::count(usize::from(self.keys.persist(key)))),
            (b"PEXPIRE", [key, left, options @ ..]) => self.pexpire("pexpire", key, left, options),
            (b"PEXPIREAT", [key, end, options @ ..]) => self.pexpire("pexpireat", key, end, options),
            (b"ZADD", [key, words @ ..]) if words.len() >= 2 => self.zadd(key, words),
            (b"ZREM", [key, members @ ..]) if !members.is_empty() => self.zrem(key, members),
            (b"ZREMRANGEBYSCORE", [key, min, max]) => self.zremrangebyscore(key, min, max),
            (b"ZCARD", [key]) => self.zcard(key),
            (b"ZPOPMIN", [key]) => self.zpopmin(key),
            (b"ZSCORE", [key, member]) => self.zscore(key, member),
            (b"ZRANGE", [key, first, last, options @ ..]) => self.zrange(key, first, last, options),
            (b"LINDEX", [key, place]) => self.lindex(key, place),
            (b"RPUSH", [key, items @ ..]) if !items.is_empty() => self.push(key, items, VecDeque::push_back),
            (b"LPUSH", [key, items @ ..]) if !items.is_empty() => self.push(key, items, VecDeque::push_front),
            (b"LPOP", [key]) => self.pop(key, VecDeque::pop_front),
            (b"RPOP", [key]) => self.pop(key, VecDeque::pop_back),
            (b"LPOS", [key, item]) => self.lpos(key, item),
            (b"LREM", [key, count, item]) => self.lrem(key, count, item),
            (b"LLEN", [key]) => self.list(key).map(|list| Reply::count(list.map_or(0, VecDeque::len))),
            (b"LRANGE", [key, first, last]) => self.lrange(key, first, last),
            (b"PUBLISH", [channel, message]) => {
                let (cluster, channels) = (&self.cluster, &mut self.channels);
                let is_here = |client| cluster.node_of(client) == cluster.current;
                Ok(Reply::count(channels.publish(channel, message, is_here)))
            }
            (b"SPUBLISH", [channel, message]) => self.spublish(channel, message),
            (b"CLUSTER", [_, ..]) if self.cluster.is_one() => Ok(self.cluster.tell(arguments)),
            (b"TIME", []) => Ok(self.time()),
            (b"PING", []) => Ok(Reply::Simple("PONG".to_owned())),
            (b"PING" | b"ECHO", [message]) => Ok(Reply::bulk(message)),
            (b"INFO", _) => Ok(self.info()),
            (b"FLUSHALL", [] | [_]) => {
                self.flush();
                Ok(Reply::ok())
            }
            _ if is_name(name) || self.has_delete(name) => return Err(Refusal::WrongCount),
            _ => return Err(Refusal::Unknown),
        };
        if matches!(name, b"GET" | b"GETRANGE" | b"MGET" | b"EXISTS") {
            self.tracking.on_read(arguments);
        }
        self.tell_changes();
        Ok(outcome.unwrap_or_else(|error| error))
    }

    fn has_delete(&self, name: &[u8]) -> bool {
        self.delete.is_some_and(|delete| delete.as_bytes() == name)
    }

    fn delete_if_equal(&mut self, key: &[u8], value: &[u8]) -> Outcome {
        let is_equal = self.text(key)? == Some(value);
        Ok(Reply::count(usize::from(is_equal && self.keys.remove(key))))
    }

    fn spublish(&mut self, channel: &[u8], message: &[u8]) -> Outcome {
        if let Some(redirect) = self.cluster.redirect(channel) {
            return Err(redirect);
        }
        let (cluster, channels) = (&self.cluster, &mut self.channels);
        let is_here = |client| cluster.node_of(client) == cluster.current;
        Ok(Reply::count(channels.spublish(channel, message, is_here)))
    }

    /// Removes all keys.
    pub(crate) fn flush(&mut self) {
        self.keys.clear();
        self.channels.tell(self.tracking.on_flush());
    }

    /// Notifies the clients that track the changed keys.
    fn tell_changes(&mut self) {
        for key in self.keys.take_changed() {
            self.channels.tell(self.tracking.on_change(&key));
        }
    }

    /// Parts of all sections.
    fn info(&self) -> Reply {
        let server = format!("# Server\r\nrun_id:{}\r\nuptime_in_seconds:0\r\n", self.run_id);
        Reply::bulk(format!("{server}\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"))
    }

    fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, Reply> {
        match self.keys.get(key).map(|slot| &slot.value) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(wrong_type()),
            None => Ok(None),
        }
    }

    fn list(&self, key: &[u8]) -> Result<Option<&VecDeque<Vec<u8>>>, Reply> {
        match self.keys.get(key).map(|slot| &slot.value) {
            Some(Value::List(list)) => Ok(Some(list)),
            Some(_) => Err(wrong_type()),
            None => Ok(None),
        }
    }

    /// Changes a list, and removes it if it is empty then; `None` if there is none.
    fn change<T>(&mut self, key: &[u8], change: impl FnOnce(&mut VecDeque<Vec<u8>>) -> T) -> Result<Option<T>, Reply> {
        let list = match self.keys.value_mut(key) {
            Some(Value::List(list)) => list,
            Some(_) => return Err(wrong_type()),
            None => return Ok(None),
        };
        let changed = change(list);
        if list.is_empty() {
            self.keys.remove(key);
        }
        Ok(Some(changed))
    }

    fn get(&self, key: &[u8]) -> Outcome {
        Ok(self.text(key)?.map_or(Reply::Nil, |text| self.read(text)))
    }

    /// A negative index means the last byte; others are not needed.
    fn getrange(&self, key: &[u8], first: &[u8], last: &[u8]) -> Outcome {
        let place = |word| Ok::<_, Reply>(usize::try_from(integer(word)?).unwrap_or(usize::MAX));
        let (first, last, text) = (place(first)?, place(last)?, self.text(key)?.unwrap_or_default());
        let end = text.len().min(last.saturating_add(1));
        Ok(self.read(text.get(first..end).unwrap_or_default()))
    }

    fn read(&self, text: &[u8]) -> Reply {
        self.largest_read.set(self.largest_read.get().max(text.len()));
        Reply::bulk(text)
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[&[u8]]) -> Outcome {
        let options = SetOptions::read(options)?;
        let end = match options.lease {
            Some(Lease { number, unit, from }) => {
                let invalid = || Reply::error("ERR invalid expire time in 'set' command");
                let from = match from {
                    From::Now => self.now(),
                    From::Epoch => 0,
                };
                let span = integer(number)?.checked_mul(unit).filter(|span| *span > 0);
                Some(span.and_then(|span| span.checked_add(from)).ok_or_else(invalid)?)
            }
            None if options.keeps_end => self.keys.get(key).and_then(Slot::end),
            None => None,
        };
        let previous = if options.gets { Some(self.get(key)?) } else { None };
        let is_there = self.keys.get(key).is_some();
        if options.only_if.is_some_and(|wanted| wanted != is_there) {
            return Ok(previous.unwrap_or(Reply::Nil));
        }
        self.keys.set(key, Value::Text(value.to_vec()), end);
        Ok(previous.unwrap_or_else(Reply::ok))
    }

    fn pttl(&self, key: &[u8]) -> Reply {
        Reply::Integer(match self.keys.get(key).map(Slot::end) {
            Some(Some(end)) => (end - self.now()).max(0),
            Some(None) => -1,
            None => -2,
        })
    }

    /// `PEXPIRE`, or `PEXPIREAT` by that `name`.
    fn pexpire(&mut self, name: &str, key: &[u8], number: &[u8], options: &[&[u8]]) -> Outcome {
        let invalid = || Reply::error(format!("ERR invalid expire time in '{name}' command"));
        let mut conditions = Vec::new();
        for option in options {
            conditions.push(match option.to_ascii_uppercase().as_slice() {
                b"NX" => Condition::NoEnd,
                b"XX" => Condition::AnEnd,
                b"GT" => Condition::Later,
                b"LT" => Condition::Earlier,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(Reply::error(format!("ERR Unsupported option {option}")));
                }
            });
        }
        let has = |condition| conditions.contains(&condition);
        if has(Condition::NoEnd) && conditions.iter().any(|condition| *condition != Condition::NoEnd) {
            let message = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Reply::error(message));
        }
        if has(Condition::Later) && has(Condition::Earlier) {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        let from = if name == "pexpire" { self.now() } else { 0 };
        let end = integer(number)?.checked_add(from).ok_or_else(invalid)?;
        let Some(slot) = self.keys.get(key) else {
            return Ok(Reply::Integer(0));
        };
        let holds = |condition: &Condition| match (condition, slot.end()) {
            (Condition::NoEnd, old) => old.is_none(),
            (Condition::AnEnd, old) => old.is_some(),
            // A key without an expiry lives longer than any other.
            (Condition::Later, old) => old.is_some_and(|old| end > old),
            (Condition::Earlier, old) => old.is_none_or(|old| end < old),
        };
        if !conditions.iter().all(holds) {
            return Ok(Reply::Integer(0));
        }
        // A server on which time passes within a script reads the clock again.
        self.clock.go_on();
        if end <= self.now() {
            self.keys.remove(key);
        } else {
            self.keys.set_end(key, end);
        }
        Ok(Reply::Integer(1))
    }

    fn push(&mut self, key: &[u8], items: &[&[u8]], push: fn(&mut List, Vec<u8>)) -> Outcome {
        let fill = |list: &mut List| {
            for item in items {
                push(list, item.to_vec());
            }
            list.len()
        };
        let pushed = self.change(key, fill)?;
        if pushed.is_none() {
            let mut list = List::new();
            fill(&mut list);
            self.keys.set(key, Value::List(list), None);
        }
        Ok(Reply::count(pushed.unwrap_or(items.len())))
    }

    fn pop(&mut self, key: &[u8], pop: fn(&mut List) -> Option<Vec<u8>>) -> Outcome {
        let popped = self.change(key, pop)?.flatten();
        Ok(popped.map_or(Reply::Nil, Reply::Bulk))
    }

    fn lpos(&self, key: &[u8], item: &[u8]) -> Outcome {
        let at = self.list(key)?.and_then(|list| list.iter().position(|other| other == item));
        Ok(at.map_or(Reply::Nil, Reply::count))
    }

    fn lrem(&mut self, key: &[u8], count: &[u8], item: &[u8]) -> Outcome {
        let count = integer(count)?;
        let mut left =
            if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        let removed = self.change(key, |list| {
            let before = list.len();
            let mut keep = |other: &Vec<u8>| {
                let goes = left > 0 && other == item;
                left -= usize::from(goes);
                !goes
            };
            // A negative count starts from the end.
            *list = if count < 0 {
                let kept: Vec<_> = list.drain(..).rev().filter(|other| keep(other)).collect();
                kept.into_iter().rev().collect()
            } else {
                list.drain(..).filter(|other| keep(other)).collect()
            };
            before - list.len()
        })?;
        Ok(Reply::count(removed.unwrap_or_default()))
    }

    fn lindex(&self, key: &[u8], place: &[u8]) -> Outcome {
        let list = self.list(key)?;
        let place = integer(place)?;
        let item = list.and_then(|list| {
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            list.get(usize::try_from(if place < 0 { place + length } else { place }).ok()?)
        });
        Ok(item.map_or(Reply::Nil, Reply::bulk))
    }

    fn lrange(&self, key: &[u8], first: &[u8], last: &[u8]) -> Outcome {
        let (first, last) = (integer(first)?, integer(last)?);
        let Some(list) = self.list(key)? else {
            return Ok(Reply::Array(Vec::new()));
        };
        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
        // A negative index counts from the end.
        let index =
            |at: i64| usize::try_from(if at < 0 { at + length } else { at }.clamp(0, length)).unwrap_or_default();
        let end = if last < -length { 0 } else { index(last) + 1 };
        let items = list.iter().take(end).skip(index(first));
        Ok(Reply::Array(items.map(Reply::bulk).collect()))
    }

    fn time(&self) -> Reply {
        let part = |number: u64| Reply::bulk(number.to_string());
        let micros = self.clock.micros();
        Reply::Array(vec![part(micros / 1_000_000), part(micros % 1_000_000)])
    }
}

#[derive(Default)]
struct SetOptions<'a> {
    /// Whether the key must exist, or must not.
    only_if: Option<bool>,
    gets: bool,
    keeps_end: bool,
    lease: Option<Lease<'a>>,
}

struct Lease<'a> {
    number: &'a [u8],
    /// The unit of the number, in milliseconds.
    unit: i64,
    from: From,
}

/// The time from which the expiry is counted.
enum From {
    Now,
    Epoch,
}

impl<'a> SetOptions<'a> {
    fn read(words: &[&'a [u8]]) -> Result<Self, Reply> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if options.only_if != Some(true) => options.only_if = Some(false),
                b"XX" if options.only_if != Some(false) => options.only_if = Some(true),
                b"GET" => options.gets = true,
                b"KEEPTTL" if options.lease.is_none() => options.keeps_end = true,
                name @ (b"PX" | b"EX" | b"PXAT") if options.lease.is_none() && !options.keeps_end => {
                    let number = words.next().ok_or_else(syntax_error)?;
                    let unit = if name == b"EX" { 1000 } else { 1 };
                    let from = if name == b"PXAT" { From::Epoch } else { From::Now };
                    options.lease = Some(Lease { number, unit, from });
                }
                _ => return Err(syntax_error()),
            }
        }
        Ok(options)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Condition {
    NoEnd,
    AnEnd,
    Later,
    Earlier,
}

fn type_of(slot: Option<&Slot>) -> &'static str {
    match slot.map(|slot| &slot.value) {
        Some(Value::Text(_)) => "string",
        Some(Value::List(_)) => "list",
        Some(Value::Sorted(_)) => "zset",
        None => "none",
    }
}

pub(crate) fn integer(word: &[u8]) -> Result<i64, Reply> {
    let number =
        std::str::from_utf8(word).ok().filter(|word| !word.starts_with('+')).and_then(|word| word.parse().ok());
    number.ok_or_else(|| Reply::error("ERR value is not an integer or out of range"))
}

pub(crate) fn syntax_error() -> Reply {
    Reply::error("ERR syntax error")
}

pub(crate) fn wrong_type() -> Reply {
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
}
