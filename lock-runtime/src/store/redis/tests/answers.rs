//! What each reply of the scripts means: docs/protocol.md.

use super::*;
use crate::store::redis::answer::Freed;
use crate::store::{Busy, Grant, Ownership, Retry};

fn text_of(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn array<const N: usize>(fields: [i64; N]) -> Vec<Value> {
    fields.map(Value::Int).into()
}

/// The fields of an answer that ends with the lock's owner.
fn owned<const N: usize>(fields: [i64; N], owner: &str, more: &[i64]) -> Value {
    let more = more.iter().copied().map(Value::Int);
    Value::Array(array(fields).into_iter().chain([text_of(owner)]).chain(more).collect())
}

fn answer(value: Value, fences: u32) -> Result<Answer, StoreError> {
    read_answer(value, &ask(fences), Anchor { sent: Moment::now(), store_micros: 7, drift: Drift::DEFAULT, node: None })
}

/// Whether another process waits, and the first fencing token. The lease must have `millis` left.
#[track_caller]
fn granted(outcome: Result<Answer, StoreError>, millis: u64) -> (bool, Option<u64>) {
    let Answer::Granted(Grant { until, contended, fence }) = outcome.unwrap() else { panic!("it is busy") };
    let lease = Duration::from_millis(millis);
    assert!(until.span() <= lease && until.span() + lease / 50 + Duration::from_millis(5) > lease, "{until:?}");
    (contended, fence)
}

/// The owner, the rest of its lease, whether the lease never ends, and the time by the store's clock.
#[track_caller]
fn busy(outcome: Result<Answer, StoreError>) -> (String, Option<u64>, bool, Option<u64>) {
    let Answer::Busy(Busy { owner, frees_in, endless, anchor, .. }) = outcome.unwrap() else { panic!("it is granted") };
    let millis = frees_in.map(|span| span.as_millis().try_into().unwrap());
    (owner.as_str().to_owned(), millis, endless, anchor.map(|anchor| anchor.store_micros))
}

#[test]
fn an_answer_grants_or_names_who_has_the_lock() {
    assert_eq!(granted(answer(Value::Array(array([1, 2500, 0, 0])), 0), 2500), (false, None));
    assert_eq!(granted(answer(Value::Array(array([1, 2500, 1, 77])), 2), 2500), (true, Some(77)));
    assert_eq!(granted(answer(Value::Array(array([1, -2, 2, 0])), 1), 0), (false, None));
    assert_eq!(granted(answer(Value::Array(array([1, 2500, 0, 77])), 0), 2500), (false, None), "none was asked for");
    assert_eq!(busy(answer(owned([0, 900], "o", &[0]), 0)), ("o".to_owned(), Some(901), false, Some(7)));
    assert_eq!(busy(answer(owned([0, -1], "o", &[0]), 0)), ("o".to_owned(), None, true, Some(7)));
    assert_eq!(busy(answer(owned([0, 1], "o", &[8000]), 0)), ("o".to_owned(), Some(2), false, Some(7)));
    assert!(matches!(answer(Value::Array(array([-1])), 0), Ok(Answer::Late)));
}

#[test]
fn a_claim_is_granted_confirmed_or_refused() {
    let claimed = |value| read_claimed(value, &ask(0), Moment::now(), Drift::DEFAULT);
    assert_eq!(granted(claimed(Value::Okay), 2000), (false, None));
    assert_eq!(busy(claimed(Value::Nil)), (String::new(), None, false, None), "the owner was not asked for");
    assert_eq!(granted(claimed(text_of(TOKEN)), 0), (false, None), "its remaining time is not known");
    for value in [text_of("o"), Value::SimpleString("o".to_owned())] {
        assert_eq!(busy(claimed(value)), ("o".to_owned(), None, false, None));
    }
    assert!(claimed(Value::Int(1)).is_err());
}

#[test]
fn a_release_says_whether_it_was_owned() {
    for (answer, ownership) in [(0, Ownership::NotOwned), (1, Ownership::Owned), (2, Ownership::Forced)] {
        assert_eq!(read_released(Value::Int(answer), &release("p:k")).unwrap(), ownership);
    }
}

#[test]
fn an_error_with_one_key_is_reported_for_that_key() {
    let failed = |message: &str| Value::Array(vec![Value::Int(-2), text_of(message)]);
    for (message, retry) in [("OOM command not allowed", Retry::Later), ("WRONGTYPE Operation", Retry::Never)] {
        let of_answer = answer(failed(message), 0).unwrap_err();
        let of_release = read_released(failed(message), &release("p:k")).unwrap_err();
        for error in [of_answer, of_release] {
            assert_eq!(error.retry, retry, "{message}");
            assert!(error.problem.to_string().contains(message), "{error:?}");
        }
    }
}

#[test]
fn one_freed_or_several_are_read_in_their_order() {
    assert_eq!(read_freed(Value::Int(1), 1).unwrap(), None);
    assert_eq!(read_freed(Value::Int(3), 3).unwrap(), None);
    assert!(read_freed(Value::Int(2), 3).is_err());
    assert_eq!(read_freed(Value::Array(array([0])), 1).unwrap().unwrap(), [Freed::Not]);
    assert_eq!(
        read_freed(Value::Array(array([0, 1, 2])), 3).unwrap().unwrap(),
        [Freed::Not, Freed::Done, Freed::Awaited]
    );
    assert!(read_freed(Value::Array(array([1])), 2).is_err());
    assert_eq!(read_drawn(&Value::Int(1)).unwrap(), Some(1));
    assert_eq!(read_drawn(&Value::Int(0)).unwrap(), None);
}

#[test]
fn the_code_of_a_caught_error_is_found_among_the_answers() {
    let caught = |answers: Vec<Value>| reply::caught(&Value::Array(answers)).map(str::to_owned);
    let failed = |message: &str| Value::Array(vec![Value::Int(-2), text_of(message)]);
    let error = ::redis::parse_redis_value(b"-READONLY You can't write\r\n").unwrap();
    assert_eq!(caught(vec![Value::Int(7), failed("READONLY x"), failed("OOM y")]).as_deref(), Some("READONLY"));
    assert_eq!(caught(vec![Value::Int(1), text_of("NOREPLICAS z")]).as_deref(), Some("NOREPLICAS"));
    assert_eq!(caught(vec![error]).as_deref(), Some("READONLY"));
    assert_eq!(caught(vec![Value::Int(7), Value::Array(array([1, 2500, 0, 0]))]), None);
    assert_eq!(reply::caught(&Value::Int(1)), None);
}
