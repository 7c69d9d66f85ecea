//! Tests: how a lease keeps its time.

use super::*;
use crate::lock::tests::plain::Plain;
use crate::mutants::{Mutant, Seeded};
use crate::protocol::Pushed;

const LONG: Duration = Duration::from_secs(9);

#[test]
fn an_answer_after_the_push_counts_when_the_lease_is_released() {
    let token = Token::foreign("t");
    let mut pending = PendingAsk::new(token.clone(), None, CLAIM);
    pending.note_sent(Moment::now(), 0, true);
    let claim = CLAIM;
    pending.on_push(&Pushed { token, claim, store_micros: 0, contended: false, node: None, unconfirmed: false });
    let env = Plain::new();
    let grant = pending.take_grant(&env).unwrap();
    assert!(Lease::new(&pending, &grant, None, &env).release(&env).queued);
}

/// A push gets its date from an ask that was sent long before. Once confirmed, the lease is as old as the grant, not as the ask.
#[tokio::test(start_paused = true)]
async fn a_pushed_grant_is_not_as_old_as_the_ask_that_dates_it() {
    let (pending, sent, env) = (PendingAsk::new(Token::foreign("t"), None, CLAIM), Moment::now(), Plain::new());
    let lease = |span| {
        let until = Deadline::new(sent, span);
        Lease::new(&pending, &Grant { until, contended: false, fence: None }, None, &env)
    };
    tokio::time::advance(LONG).await;
    let is_outlived = |lease: &Lease| lease.outlived(Moment::now(), Drift::DEFAULT).is_some();
    for (bug, is_old) in [(None, false), (Some(Mutant::OutlivedSinceAsk), true)] {
        let _seeded = Seeded::begin(bug);
        assert_eq!(is_outlived(&lease(LONG + CLAIM)), is_old, "{bug:?}");
    }
    assert!(is_outlived(&lease(Drift::DEFAULT.trusted(CLAIM))));
    assert!(!is_outlived(&lease(Duration::ZERO)), "nothing dates it");
    let hinted = Lease { hinted: Some(sent.into()), ..lease(CLAIM) };
    assert!(!is_outlived(&hinted), "it is not confirmed");
}

#[test]
fn what_is_written_back_is_the_last_fencing_token_used() {
    let mut fences = Fences::new(10, 3);
    assert_eq!(fences.unused(), Some((12, 9)));
    assert_eq!((fences.take(), fences.unused()), (Some(10), Some((12, 10))));
    assert_eq!((fences.take(), fences.unused()), (Some(11), Some((12, 11))));
    assert_eq!((fences.take(), fences.unused()), (Some(12), None));
    assert_eq!((fences.take(), fences.unused()), (None, None));
    assert_eq!(Fences::default().unused(), None);
}

/// Rule 8: meanwhile others, or a body inside the hold, may have drawn greater tokens.
#[tokio::test(start_paused = true)]
async fn fencing_tokens_that_were_reserved_before_the_lease_lapsed_are_forgotten() {
    let (pending, sent, env) = (PendingAsk::new(Token::foreign("t"), None, CLAIM), Moment::now(), Plain::new());
    let grant = Grant { until: Deadline::new(sent, CLAIM), contended: false, fence: None };
    let confirmed = |lease: &mut Lease| lease.confirm(Deadline::new(Moment::now(), CLAIM), Moment::now());
    for (bug, are_kept) in [(None, false), (Some(Mutant::LapsedFencesKept), true)] {
        let _seeded = Seeded::begin(bug);
        let mut lease = Lease { fences: Fences::new(10, 3), ..Lease::new(&pending, &grant, None, &env) };
        lease.until = Deadline::new(Moment::now(), CLAIM);
        assert!(confirmed(&mut lease) && !lease.fences.is_empty(), "it has not lapsed");
        tokio::time::advance(CLAIM).await;
        assert!(confirmed(&mut lease));
        assert_eq!(!lease.fences.is_empty(), are_kept, "{bug:?}");
    }
}
