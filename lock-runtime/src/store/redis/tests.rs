//! Whatever a server sends is an answer or an error; all keys of a lock are in one cluster slot.

use ::redis::{Arg, PushKind, Value, VerbatimFormat};
use proptest::prelude::*;

use super::answer::{read_answer, read_claimed, read_freed, read_released, read_renewed};
use super::release::{free_arguments, release_arguments};
use super::reply::Reply;
use super::*;
use crate::clock::Drift;
use crate::key;
use crate::settings::Settings;
use crate::store::{Anchor, Pushed};

mod answers;

const TOKEN: &str = "0123456789abcdef0123456789abcdef.7@me";

fn ask(fences: u32) -> Ask {
    let (key, token, claim) = ("p:k".into(), Token::foreign(TOKEN), Duration::from_secs(2));
    Ask { key, token, share: None, claim, wait: true, replaces: None, fences, give_up: Deadline::after(claim) }
}

fn release(key: &str) -> Release {
    let withdrawal = Release::withdrawal(&key.into(), &Token::foreign(TOKEN), Duration::MAX);
    Release { unused_fences: Some((9, 8)), ..withdrawal }
}

fn leaf() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        Just(TOKEN.to_owned()),
        "(NOPERM|OOM|ERR|READONLY|WRONGTYPE)?.{0,20}",
        "[0-9a-f]{32}\\.[0-9]{1,3}@[a-z%é0-9]{0,9}",
    ];
    let error = text.clone().prop_filter_map("one line", |text| {
        ::redis::parse_redis_value(format!("-{}\r\n", text.replace(['\r', '\n'], " ")).as_bytes()).ok()
    });
    prop_oneof![
        4 => prop_oneof![-3..3_i64, any::<i64>()].prop_map(Value::Int),
        2 => text.clone().prop_map(|text| Value::BulkString(text.into_bytes())),
        1 => any::<Vec<u8>>().prop_map(Value::BulkString),
        1 => text.clone().prop_map(Value::SimpleString),
        1 => error,
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => text.prop_map(|text| Value::VerbatimString { format: VerbatimFormat::Text, text }),
        1 => any::<Vec<u8>>().prop_map(Value::BigNumber),
    ]
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 6, |inner| {
        let some = prop::collection::vec(inner.clone(), 0..6);
        let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..3);
        prop_oneof![
            6 => some.clone().prop_map(Value::Array),
            1 => some.clone().prop_map(Value::Set),
            1 => some.prop_map(|data| Value::Push { kind: PushKind::Message, data }),
            1 => pairs.clone().prop_map(Value::Map),
            1 => (inner, pairs).prop_map(|(data, attributes)| Value::Attribute { data: Box::new(data), attributes }),
        ]
    })
}

/// Replies in the shape of the scripts' replies, with any numbers and texts.
fn shaped() -> impl Strategy<Value = Value> {
    let number = || prop_oneof![-3..3_i64, any::<i64>()].prop_map(Value::Int);
    let owner = || prop_oneof![Just(TOKEN.to_owned()), any::<String>()];
    let owner = move || owner().prop_map(|text| Value::BulkString(text.into_bytes()));
    let refused = leaf().prop_map(|message| vec![Value::Int(-2), message]);
    let granted = prop::collection::vec(number(), 0..6);
    let busy = (number(), number(), owner()).prop_map(|(kind, left, owner)| vec![kind, left, owner]);
    prop_oneof![refused, granted, busy].prop_map(Value::Array)
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![value(), shaped()]
}

/// Uses all parts of an outcome: until when, who, and the error's text.
fn look_at(outcome: Result<Answer, StoreError>) {
    match outcome {
        Ok(Answer::Granted(grant)) => drop((grant.until.remaining(), grant.until.on_timer())),
        Ok(Answer::Busy(busy)) => drop(busy.owner.label()),
        Ok(Answer::Late | Answer::Replaced) => {}
        Err(error) => drop((error.is_denied(), error.problem.to_string())),
    }
}

fn keys(count: usize, arguments: impl FnOnce(&mut Cmd)) -> Vec<Vec<u8>> {
    let mut command = Cmd::new();
    arguments(&mut command);
    let key = |argument: Arg<&[u8]>| {
        if let Arg::Simple(key) = argument { key.to_vec() } else { unreachable!("no cursor is sent") }
    };
    command.args_iter().take(count).map(key).collect()
}

/// What the cluster specification hashes to a slot: the text in the first braces, if there is any. Keys with the same hashed text have the
/// same slot, whatever the hash.
fn hashed(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        inside.iter().position(|byte| *byte == b'}').map(|close| &inside[..close])
    });
    inside.filter(|inside| !inside.is_empty()).unwrap_or(key)
}

#[test]
fn the_rule_of_the_cluster_is_that_of_its_specification() {
    for (key, tag) in [
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("}{", "}{"),
    ] {
        assert_eq!(hashed(key.as_bytes()), tag.as_bytes());
    }
}

/// Runs every decoder on the reply.
fn decode(value: &Value, fences: u32, micros: u64, lease: u64) {
    let sent = Moment::now();
    let anchor = Anchor { sent, store_micros: micros, drift: Drift::DEFAULT, node: None };
    let renewal = Renewal {
        key: "p:k".into(),
        token: Token::foreign(TOKEN),
        share: None,
        lease: Duration::from_millis(lease),
        grace: Duration::ZERO,
        arms: false,
    };
    look_at(read_claimed(value.clone(), &ask(fences), sent, Drift::DEFAULT));
    look_at(read_answer(value.clone(), &ask(fences), anchor));
    let _ = read_released(value.clone(), &release("p:k"));
    if let Ok(Renewed::Until(until)) = read_renewed(value.clone(), &renewal, sent, Drift::DEFAULT) {
        assert!(*value == Value::Int(1) && until.span() <= renewal.lease);
    }
    if let Ok(freed) = read_freed(value.clone(), 2) {
        assert!(freed.is_none_or(|freed| freed.len() == 2));
    }
    assert!(!matches!(read_drawn(value), Ok(Some(0))));
    if let Some(Reply { answers, .. }) = Reply::read(value.clone()) {
        for answer in answers {
            look_at(read_answer(answer, &ask(fences), anchor));
        }
    }
    look_at(Err(reply::error_of_one(value.clone())));
}

#[test]
fn fuzz_replies() {
    crate::fuzz::any_bytes("replies", |bytes| {
        let Some((fences, reply)) = bytes.split_first() else { return };
        if let Ok(value) = ::redis::parse_redis_value(reply) {
            decode(&value, u32::from(*fences % 3), 1_700_000_000_000_000, 30_000);
        }
    });
}

proptest! {
    #[test]
    fn no_reply_makes_a_decoder_panic(value in any_value(), fences in 0..3_u32, micros: u64, lease: u64) {
        decode(&value, fences, micros, lease);
    }

    /// Any client that may publish on the channel can send any server time.
    #[test]
    fn a_pushed_grant_ends_within_its_claim(
        claim in prop_oneof![0..10_000_u64, any::<u64>()],
        store_micros in prop_oneof![0..100_000_000_u64, any::<u64>()],
        asked_micros in prop_oneof![0..100_000_000_u64, any::<u64>()],
    ) {
        let claim = Duration::from_millis(claim);
        let pushed = Pushed { token: Token::foreign(TOKEN), claim, store_micros, contended: false, node: None, unconfirmed: false };
        let anchor = Anchor { sent: Moment::now(), store_micros: asked_micros, drift: Drift::DEFAULT, node: None };
        let until = pushed.until(anchor, Moment::now());
        prop_assert!(until.remaining() <= claim);
    }

    #[test]
    fn all_keys_of_a_lock_are_in_its_cluster_slot(
        namespace in prop::option::of("[!-~é]{1,9}|[{}:%a]{1,4}"),
        prefix in "[!-~é]{1,9}|[{}:%a]{1,4}",
        parts in (any::<String>(), "[{}:%a]{1,9}"),
    ) {
        let namespace = namespace.filter(|namespace| key::check_text(namespace).is_ok());
        let settings = Settings { namespace, ..Settings::default() };
        let Ok(name) = key::name(&prefix, &parts) else { return Ok(()) };
        let name = settings.full_name(name).unwrap();
        prop_assert!(!name.contains(['{', '}']), "{name}");
        let release = release(&name);
        for keys in [
            keys(3, |command| lock_keys(command, &name, false)),
            keys(3, |command| release_arguments(command, std::slice::from_ref(&release))),
            keys(2, |command| free_arguments(command, std::slice::from_ref(&release))),
            keys(2, |command| draw_arguments(command, &name, &release.token, None, 1)),
        ] {
            prop_assert_eq!(&*keys[0], name.as_bytes());
            for helper in &keys[1..] {
                prop_assert_eq!(hashed(helper), name.as_bytes());
                // Nor is it ever the name of another lock: no name has braces.
                prop_assert_eq!(helper.first(), Some(&b'{'));
            }
        }
    }
}
