//! [`history`]: random steps.

use proptest::prelude::*;
use proptest::sample::select;

use super::{Ask, Capacity, LOCKS, Lock, NotAfter, PROCESSES, Release, Step, Token, What};

pub(crate) fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..70)
}

fn step() -> impl Strategy<Value = Step> {
    (0..PROCESSES, what()).prop_map(|(process, what)| Step { process, what })
}

fn what() -> impl Strategy<Value = What> {
    let one = || (lock(), token());
    let several = || prop::collection::vec((lock(), token()), 1..4);
    let by_text = || prop::bool::weighted(0.3);
    prop_oneof![
        4 => one().prop_map(|(lock, token)| What::Claim(lock, token)),
        10 => (prop::collection::vec(ask(), 1..4), by_text()).prop_map(|(items, by_text)| What::Ask { items, by_text }),
        3 => (several(), by_text()).prop_map(|(items, by_text)| What::Free { items, by_text }),
        10 => (prop::collection::vec(release(), 1..4), by_text())
            .prop_map(|(items, by_text)| What::Release { items, by_text }),
        4 => (several(), by_text()).prop_map(|(items, by_text)| What::Renew { items, by_text }),
        4 => (one(), 1..4_u8, by_text())
            .prop_map(|((lock, token), count, by_text)| What::Draw { lock, token, count, by_text }),
        12 => (prop::collection::vec((ask(), capacity()), 1..4), by_text())
            .prop_map(|(items, by_text)| What::SharedAsk { items, by_text }),
        10 => (prop::collection::vec((release(), capacity()), 1..4), by_text())
            .prop_map(|(items, by_text)| What::SharedRelease { items, by_text }),
        4 => (prop::collection::vec((lock(), token(), capacity()), 1..4), by_text())
            .prop_map(|(items, by_text)| What::SharedRenew { items, by_text }),
        2 => (lock(), token(), capacity()).prop_map(|(lock, token, capacity)| What::SharedDraw(lock, token, capacity)),
        1 => one().prop_map(|(lock, token)| What::Denied(lock, token)),
        3 => (lock(), by_text()).prop_map(|(lock, by_text)| What::Force { lock, by_text }),
        3 => (lock(), 0..4_u8, by_text()).prop_map(|(lock, most, by_text)| What::Inspect { lock, most, by_text }),
        6 => (0..PROCESSES).prop_map(What::Subscribe),
        2 => (0..PROCESSES).prop_map(What::Unsubscribe),
        1 => Just(What::FlushScripts),
        6 => by_hand(),
        2 => (key(), select(&["", "NX", "XX", "GT", "LT"][..])).prop_map(|(key, option)| What::Extend(key, option)),
        2 => Just(What::Pause),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let not_after = prop_oneof![4 => Just(NotAfter::Never), 4 => Just(NotAfter::Future), 1 => Just(NotAfter::Past)];
    (lock(), token(), prop::bool::weighted(0.8), 0..3_u8, not_after)
        .prop_map(|(lock, token, wait, fences, not_after)| Ask { lock, token, wait, fences, not_after })
}

fn release() -> impl Strategy<Value = Release> {
    (lock(), token(), any::<bool>()).prop_map(|(lock, token, unused)| Release { lock, token, unused })
}

/// Readers, and permits of small numbers.
fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![2 => Just(0), 1 => Just(1), 3 => Just(2)]
}

fn lock() -> impl Strategy<Value = Lock> {
    (0..LOCKS).prop_map(Lock)
}

fn token() -> impl Strategy<Value = Token> {
    let own = (0..PROCESSES, prop::bool::weighted(0.2), prop::bool::weighted(0.15))
        .prop_map(|(process, short, forced)| Token::Of { process, short, forced });
    prop_oneof![15 => own, 1 => Just(Token::Foreign)]
}

fn key() -> impl Strategy<Value = String> {
    (lock(), 0..5_usize).prop_map(|(lock, which)| lock.all()[which].clone())
}

/// Commands of other clients, including mistakes and values that no lock has.
fn by_hand() -> impl Strategy<Value = What> {
    let commands: &[&str] = &[
        "GET KEY",
        "GET KEY",
        "PTTL KEY",
        "PTTL KEY",
        "PTTL KEY",
        "DEL KEY",
        "DEL KEY",
        "TYPE KEY",
        "EXISTS KEY KEY",
        "STRLEN KEY",
        "LLEN KEY",
        "LRANGE KEY 0 -1",
        "LRANGE KEY -2 0",
        "LPOP KEY",
        "LREM KEY -1 junk",
        "LPOS KEY junk",
        "SET KEY stranger",
        "SET KEY stranger PX 30",
        "SET KEY 7 XX KEEPTTL",
        "SET KEY 7 GET",
        "RPUSH KEY junk 30|junk junk",
        "SET KEY 7 PX 0",
        "SET KEY 7 PXAT 1",
        "SET KEY 7 PXAT 0",
        "SET KEY 7 PXAT soon",
        "SET KEY 7 PXAT 1 PX 1",
        "SET KEY 7 NX XX",
        "SET KEY 7 PX",
        "PERSIST KEY",
        "PERSIST KEY",
        "PEXPIRE KEY -1",
        "PEXPIRE KEY soon",
        "PEXPIRE KEY 1 NX GT",
        "PEXPIRE KEY 1 SOON",
        "GET",
        "get KEY KEY",
        "NONSENSE KEY 1",
        "EVALSHA nothing 0",
        "EVAL error('bad') 0",
        "EVALSHA nothing 2 KEY",
        "FLUSHALL",
        "PUBLISH cache_lock:00000000000000000000000000000000 hello",
        "ECHO KEY",
        "LINDEX KEY 0",
        "LINDEX KEY -2",
        "ZADD KEY 1763813976123 junk",
        "ZADD KEY XX GT 5 junk",
        "ZADD KEY soon junk",
        "ZRANGE KEY 0 0",
        "ZRANGE KEY (5 +inf BYSCORE LIMIT 0 2",
        "ZRANGE KEY soon +inf BYSCORE LIMIT 0 2",
        "ZCARD KEY",
        "ZPOPMIN KEY",
        "ZSCORE KEY junk",
        "ZREM KEY junk junk",
        "ZREMRANGEBYSCORE KEY -inf 5",
        "ZREMRANGEBYSCORE KEY (5 7",
        "PEXPIREAT KEY soon",
        "PEXPIREAT KEY 1",
    ];
    (select(commands), key()).prop_map(|(command, key)| {
        What::ByHand(command.split(' ').map(|word| if word == "KEY" { key.clone() } else { word.to_owned() }).collect())
    })
}
