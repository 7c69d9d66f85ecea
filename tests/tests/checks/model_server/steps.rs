//! [`Step`]: one action of a process, or of another client, on locks.

use std::collections::HashMap;
use std::sync::LazyLock;

use server_model::Reply;

mod random;

pub(crate) use random::history;

/// The number of processes; each has a connection, a channel and two tokens.
pub(crate) const PROCESSES: usize = 3;
const LOCKS: usize = 3;

/// Either so long that it never expires during a history, or so short that it expires soon.
const LONG_CLAIM: u64 = 62_000;
const SHORT_CLAIM: u64 = 30;
const LEASE: u64 = 42_000;
/// The time left for a holder that must stop. It is as far from all other lengths as they are from each other.
const FORCED: u64 = 22_000;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The process whose connection sends it.
    pub(crate) process: usize,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Claim(Lock, Token),
    Ask {
        items: Vec<Ask>,
        by_text: bool,
    },
    Free {
        items: Vec<(Lock, Token)>,
        by_text: bool,
    },
    Release {
        items: Vec<Release>,
        by_text: bool,
    },
    Renew {
        items: Vec<(Lock, Token)>,
        by_text: bool,
    },
    SharedAsk {
        items: Vec<(Ask, Capacity)>,
        by_text: bool,
    },
    SharedRelease {
        items: Vec<(Release, Capacity)>,
        by_text: bool,
    },
    SharedRenew {
        items: Vec<(Lock, Token, Capacity)>,
        by_text: bool,
    },
    SharedDraw(Lock, Token, Capacity),
    Draw {
        lock: Lock,
        token: Token,
        count: u8,
        by_text: bool,
    },
    Denied(Lock, Token),
    Force {
        lock: Lock,
        by_text: bool,
    },
    Inspect {
        lock: Lock,
        most: u8,
        by_text: bool,
    },
    Subscribe(usize),
    Unsubscribe(usize),
    FlushScripts,
    ByHand(Vec<String>),
    /// Extends to a length that no other step sets.
    Extend(String, &'static str),
    Pause,
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    lock: Lock,
    token: Token,
    wait: bool,
    fences: u8,
    not_after: NotAfter,
}

/// How many may share the lock; 0 for no limit.
type Capacity = u8;

#[derive(Clone, Copy, Debug)]
enum NotAfter {
    Never,
    Past,
    Future,
}

#[derive(Clone, Debug)]
pub(crate) struct Release {
    lock: Lock,
    token: Token,
    /// Whether to write back the fencing tokens that were drawn last.
    unused: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock(usize);

impl Lock {
    fn key(self) -> String {
        format!("p:{}", self.0)
    }

    fn queue(self) -> String {
        format!("{{p:{}}}:queue", self.0)
    }

    pub(crate) fn fence(self) -> String {
        format!("{{p:{}}}:fence", self.0)
    }

    fn shared(self) -> String {
        format!("{{p:{}}}:shared", self.0)
    }

    fn head(self) -> String {
        format!("{{p:{}}}:head", self.0)
    }

    /// The keys of a shared lock.
    fn all(self) -> [String; 5] {
        [self.key(), self.queue(), self.fence(), self.shared(), self.head()]
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    Of { process: usize, short: bool, forced: bool },
    Foreign,
}

impl Token {
    fn text(self) -> String {
        match self {
            Self::Of { process, short, forced } => {
                let mark = if forced { "|forced" } else { "" };
                format!("{process:032x}.{}@host{mark}", u8::from(short) + 1)
            }
            Self::Foreign => "somebody's".to_owned(),
        }
    }

    fn claim(self) -> String {
        let short = matches!(self, Self::Of { short: true, .. });
        if short { SHORT_CLAIM.to_string() } else { (LONG_CLAIM + self.apart()).to_string() }
    }

    fn lease(self) -> String {
        (LEASE + self.apart()).to_string()
    }

    /// Keeps the ends of different processes' shared leases far apart, so that milliseconds don't decide which ends first.
    fn apart(self) -> u64 {
        match self {
            Self::Of { process, .. } => 1000 * process as u64,
            Self::Foreign => 500,
        }
    }
}

/// Parts of a side's replies that later commands to it repeat.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) micros: u64,
    /// The last token drawn per fence.
    pub(crate) drawn: HashMap<String, u64>,
}

pub(crate) struct Script {
    text: String,
    digest: String,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            let file = include_str!(concat!("../../../../lock-runtime/src/store/redis/scripts/", $file));
            let queue = include_str!("../../../../lock-runtime/src/store/redis/scripts/queue.lua");
            let shared = include_str!("../../../../lock-runtime/src/store/redis/scripts/shared.lua");
            let values = include_str!("../../../../lock-runtime/src/store/redis/scripts/values.lua");
            let take = include_str!("../../../../lock-runtime/src/store/redis/scripts/take.lua");
            let waiting = include_str!("../../../../lock-runtime/src/store/redis/scripts/waiting.lua");
            let text = file.replacen("-- include waiting.lua\n", waiting, 1);
            let text = text.replacen("-- include queue.lua\n", queue, 1);
            let text = text.replacen("-- include take.lua\n", take, 1);
            let text = text.replacen("-- include shared.lua\n", shared, 1);
            let text = text.replacen("-- include values.lua\n", values, 1);
            Script { digest: redis::Script::new(&text).get_hash().to_owned(), text }
        })
    };
}

pub(crate) static ASK: LazyLock<Script> = script!("ask.lua");
pub(crate) static FREE: LazyLock<Script> = script!("free.lua");
pub(crate) static RELEASE: LazyLock<Script> = script!("release.lua");
pub(crate) static RENEW: LazyLock<Script> = script!("renew.lua");
pub(crate) static DRAW: LazyLock<Script> = script!("draw.lua");
pub(crate) static DENIED: LazyLock<Script> = script!("denied.lua");
pub(crate) static SHARED_ASK: LazyLock<Script> = script!("shared_ask.lua");
pub(crate) static SHARED_RELEASE: LazyLock<Script> = script!("shared_release.lua");
pub(crate) static SHARED_RENEW: LazyLock<Script> = script!("shared_renew.lua");
pub(crate) static SHARED_DRAW: LazyLock<Script> = script!("shared_draw.lua");
pub(crate) static FORCE: LazyLock<Script> = script!("force.lua");
pub(crate) static INSPECT: LazyLock<Script> = script!("inspect.lua");

impl Script {
    pub(crate) fn command(&self, by_text: bool, keys: Vec<String>, arguments: Vec<String>) -> Vec<String> {
        let (name, script) = if by_text { ("EVAL", &self.text) } else { ("EVALSHA", &self.digest) };
        let mut words = vec![name.to_owned(), script.clone(), keys.len().to_string()];
        words.extend(keys);
        words.extend(arguments);
        words
    }
}

impl Step {
    /// The command for a side; `None` for a pause. `index` is the step's place in the history.
    pub(crate) fn command(&self, index: usize, known: &Known) -> Option<Vec<String>> {
        let all = |lock: Lock| [lock.key(), lock.queue(), lock.fence()];
        Some(match &self.what {
            What::Claim(lock, token) => {
                let words = ["SET", &lock.key(), &token.text(), "NX", "PX", &token.claim()];
                words.map(str::to_owned).into()
            }
            What::Ask { items, by_text } => {
                let arguments = items.iter().flat_map(|ask| ask.arguments(known)).collect();
                ASK.command(*by_text, items.iter().flat_map(|ask| all(ask.lock)).collect(), arguments)
            }
            What::Free { items, by_text } => {
                let (locks, queues) = (items.iter().map(|item| item.0.key()), items.iter().map(|item| item.0.queue()));
                FREE.command(
                    *by_text,
                    locks.chain(queues).collect(),
                    items.iter().map(|(_, token)| token.text()).collect(),
                )
            }
            What::Release { items, by_text } => {
                let arguments = items.iter().flat_map(|release| release.arguments(known)).collect();
                RELEASE.command(*by_text, items.iter().flat_map(|release| all(release.lock)).collect(), arguments)
            }
            What::Renew { items, by_text } => {
                let arguments = items.iter().flat_map(|(_, token)| [token.text(), token.lease()]).collect();
                RENEW.command(*by_text, items.iter().map(|(lock, _)| lock.key()).collect(), arguments)
            }
            What::SharedAsk { items, by_text } => {
                let arguments = |(ask, capacity): &(Ask, Capacity)| {
                    let [token, claim, rest @ ..] = ask.arguments(known);
                    [token, claim, capacity.to_string()].into_iter().chain(rest)
                };
                let keys = items.iter().flat_map(|(ask, _)| ask.lock.all()).collect();
                SHARED_ASK.command(*by_text, keys, items.iter().flat_map(arguments).collect())
            }
            What::SharedRelease { items, by_text } => {
                let arguments = |(release, capacity): &(Release, Capacity)| {
                    let [token, claim, ..] = release.arguments(known);
                    [token, claim, capacity.to_string()]
                };
                let keys = items.iter().flat_map(|(release, _)| release.lock.all()).collect();
                SHARED_RELEASE.command(*by_text, keys, items.iter().flat_map(arguments).collect())
            }
            What::SharedRenew { items, by_text } => {
                let arguments = |(_, token, capacity): &(Lock, Token, Capacity)| {
                    [token.text(), capacity.to_string(), token.lease()]
                };
                let keys = items.iter().flat_map(|(lock, ..)| [lock.key(), lock.shared()]).collect();
                SHARED_RENEW.command(*by_text, keys, items.iter().flat_map(arguments).collect())
            }
            What::SharedDraw(lock, token, capacity) => {
                let keys = vec![lock.key(), lock.fence(), lock.shared()];
                SHARED_DRAW.command(true, keys, vec![token.text(), "1".to_owned(), capacity.to_string()])
            }
            What::Draw { lock, token, count, by_text } => {
                DRAW.command(*by_text, vec![lock.key(), lock.fence()], vec![token.text(), count.to_string()])
            }
            What::Denied(lock, token) => DENIED.command(true, vec![lock.key()], vec![token.text(), String::new()]),
            What::Force { lock, by_text } => {
                FORCE.command(*by_text, vec![lock.key(), lock.queue(), lock.shared()], vec![FORCED.to_string()])
            }
            What::Inspect { lock, most, by_text } => {
                INSPECT.command(*by_text, vec![lock.key(), lock.queue(), lock.shared()], vec![most.to_string()])
            }
            What::Subscribe(process) => vec!["SUBSCRIBE".to_owned(), format!("cache_lock:{process:032x}")],
            What::Unsubscribe(process) => vec!["UNSUBSCRIBE".to_owned(), format!("cache_lock:{process:032x}")],
            What::FlushScripts => vec!["SCRIPT".to_owned(), "FLUSH".to_owned()],
            What::ByHand(words) => words.clone(),
            What::Extend(key, option) => {
                // Each is far from all others and from the claims and leases, so that milliseconds don't decide which is
                // later.
                let millis = 5_000 + 10_000 * (index * 37 % 71);
                let words = ["PEXPIRE", key, &millis.to_string(), option];
                words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            What::Pause => return None,
        })
    }

    /// Whether the number at this place of the reply is the remaining time of a key.
    pub(crate) fn is_left(&self, path: &[usize], reply: &Reply) -> bool {
        match (&self.what, path) {
            (What::Ask { .. } | What::SharedAsk { .. }, [item, 1]) => {
                *item > 0 && matches!(at(reply, &[*item, 0]), Some(Reply::Integer(0 | 1)))
            }
            (What::Release { .. } | What::SharedRelease { .. }, [item, 2]) => {
                matches!(at(reply, &[*item, 0]), Some(Reply::Integer(0..=2)))
            }
            (What::Inspect { .. }, [1]) => true,
            (What::ByHand(words), []) => words[0] == "PTTL",
            _ => false,
        }
    }

    /// Remembers the fencing tokens in a reply.
    pub(crate) fn learn(&self, reply: &Reply, known: &mut Known) {
        let mut learn = |lock: Lock, count: u8, place: &[usize]| {
            if let Some(Reply::Integer(first)) = at(reply, place)
                && *first > 0
            {
                known.drawn.insert(lock.fence(), first.cast_unsigned() + u64::from(count) - 1);
            }
        };
        match &self.what {
            What::Ask { items, .. } => {
                for (index, ask) in items.iter().enumerate().filter(|(_, ask)| ask.fences > 0) {
                    learn(ask.lock, ask.fences, &[index + 1, 3]);
                }
            }
            What::Draw { lock, count, .. } => learn(*lock, *count, &[]),
            _ => {}
        }
    }
}

impl Ask {
    fn arguments(&self, known: &Known) -> [String; 5] {
        let far = 100_000_000;
        let not_after = match self.not_after {
            NotAfter::Never => 0,
            NotAfter::Past => known.micros - far,
            NotAfter::Future => known.micros + far,
        };
        let wait = u8::from(self.wait).to_string();
        [self.token.text(), self.token.claim(), wait, self.fences.to_string(), not_after.to_string()]
    }
}

impl Release {
    fn arguments(&self, known: &Known) -> [String; 4] {
        let reserved = known.drawn.get(&self.lock.fence()).filter(|_| self.unused);
        let [reserved, used] = reserved.map_or([0, 0], |last| [*last, last - 1]).map(|number| number.to_string());
        [self.token.text(), self.token.claim(), reserved, used]
    }
}

/// The part of a reply at a place.
fn at<'a>(reply: &'a Reply, path: &[usize]) -> Option<&'a Reply> {
    path.iter().try_fold(reply, |reply, index| match reply {
        Reply::Array(items) => items.get(*index),
        _ => None,
    })
}
