//! How much of the time that passes during a script the script can see.

use std::time::{Duration, Instant};

use server_model::{ModelServer, Reply, ScriptTime};
use tests::server::{Kind, Server};

use super::real::{Connection, words};

/// Much longer than commands take.
const STOP: Duration = Duration::from_millis(200);

/// A script that returns whether `TIME`, `PTTL` and `PX` see more than a quarter of the pause, and whether a key remains to the end.
fn script(turns: u64) -> String {
    format!(
        "local function micros() local time = redis.call('TIME') return time[1] * 1000000 + time[2] end
         local began = micros()
         redis.call('SET', 'a', 'x', 'PX', 60000)
         redis.call('SET', 'short', 'x', 'PX', 1)
         for _ = 1, {turns} do end
         local left = redis.call('PTTL', 'a')
         redis.call('SET', 'b', 'x', 'PX', 60000)
         local later = redis.call('PTTL', 'b') - redis.call('PTTL', 'a')
         local function is_seen(millis) return millis > 50 and 1 or 0 end
         return {{ is_seen((micros() - began) / 1000), is_seen(60000 - left), is_seen(later), redis.call('EXISTS', 'short') }}"
    )
}

pub(crate) fn compare(kind: Kind) {
    let server = Server::of(kind, &[]);
    let mut connection = Connection::to(&server);
    let mut ask = |text: &str| connection.ask(&[words(&["EVAL", text, "0"])]).swap_remove(0);
    let mut turns = 1_000_000;
    loop {
        let start = Instant::now();
        ask(&format!("for _ = 1, {turns} do end"));
        if start.elapsed() > STOP {
            break;
        }
        turns *= 2;
    }
    let real = ask(&script(turns));
    let of_model = [ScriptTime::Passes, ScriptTime::StandsStill].map(|script_time| {
        let mut model = ModelServer::new();
        let client = model.connect();
        model.set_script_time(script_time);
        model.set_pace(|| 100_000);
        model.execute(client, 1_700_000_000_000_000, &words(&["EVAL", &script(0), "0"]))
    });
    let seen = |flags: [i64; 4]| Reply::Array(flags.map(Reply::Integer).into());
    assert_eq!(of_model, [seen([1, 1, 1, 1]), seen([0, 0, 0, 1])]);
    assert!(of_model.contains(&real), "{kind:?}: {real:?}");
}
