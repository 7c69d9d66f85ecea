//! The model server replies, pushes and stores the same as real servers, step by step through random histories. It models
//! Redis 7.0, and knows the script time of newer servers as well. `pair` translates Valkey's error texts.

mod foreign;
mod pair;
mod real;
mod script_time;
mod steps;
mod texts;

use pair::{Failure, Pair};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use tests::server::{Kind, Server};

#[test]
fn the_model_does_what_redis_does() {
    compare(Kind::Redis);
}

#[test]
fn the_model_does_what_valkey_does() {
    compare(Kind::Valkey);
}

#[test]
fn any_script_does_what_it_does_on_redis() {
    texts::compare(Kind::Redis);
}

#[test]
fn any_script_does_what_it_does_on_valkey() {
    texts::compare(Kind::Valkey);
}

#[test]
fn time_inside_a_script_is_that_of_redis() {
    script_time::compare(Kind::Redis);
}

#[test]
fn time_inside_a_script_is_that_of_valkey() {
    script_time::compare(Kind::Valkey);
}

fn compare(kind: Kind) {
    let server = Server::of(kind, &[]);
    let config = Config { cases: 150, failure_persistence: None, max_shrink_time: 10_000, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps::history(), |history| {
        for _ in 0..10 {
            match Pair::new(&server).run(&history) {
                Ok(()) => return Ok(()),
                Err(Failure::Different(how)) => return Err(TestCaseError::fail(how)),
                Err(Failure::Unclear) => {}
            }
        }
        Err(TestCaseError::fail("this machine is too slow, or its clock too unsteady, to know which key expired first"))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("{reason}"),
        Err(TestError::Fail(reason, history)) => {
            let steps: Vec<_> = history.iter().enumerate().map(|(index, step)| format!("{index}: {step:?}")).collect();
            panic!("{reason}\n{}", steps.join("\n"));
        }
    }
}
