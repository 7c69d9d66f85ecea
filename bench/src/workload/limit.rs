//! The limit of the server alone: claims and releases by a bare generator, which writes prepared bytes and counts replies. Nobody
//! waits for a single reply, and there is no client library.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::child::{Run, ready};
use crate::outcome::Outcome;

/// As many keys as in W2, and as many releases as fit into one script.
const KEYS: usize = 64;
/// How many rounds are on their way at once: the server never waits for the generator.
const AHEAD: usize = 16;

/// Deletes each owned key, as the release of many locks does.
const FREE: &str = "local freed = {} for i = 1, #KEYS do if redis.call('GET', KEYS[i]) == ARGV[i] then \
                    freed[#freed + 1] = KEYS[i] end end return redis.call('DEL', unpack(freed))";

pub(crate) fn run(run: &Run) -> Result<Outcome, String> {
    let address = run.url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let failed = |error: std::io::Error| error.to_string();
    let mut server = TcpStream::connect(address).map_err(failed)?;
    server.set_nodelay(true).map_err(failed)?;
    server.write_all(&command(&["SCRIPT", "LOAD", FREE])).map_err(failed)?;
    let digest = digest_of(&mut server).map_err(failed)?;
    let (keys, token) = ((0..KEYS).map(|key| format!("w:{key}")).collect::<Vec<_>>(), format!("{:032x}.1", 1));
    let mut round = Vec::new();
    for key in &keys {
        round.extend(command(&["SET", key, &token, "NX", "PX", "2500"]));
    }
    let count = KEYS.to_string();
    let mut release = vec!["EVALSHA", digest.as_str(), count.as_str()];
    release.extend(keys.iter().map(String::as_str));
    release.extend(std::iter::repeat_n(token.as_str(), KEYS));
    round.extend(command(&release));
    let reply = format!("{}:{KEYS}\r\n", "+OK\r\n".repeat(KEYS));
    let rounds = run.size(4000, 1000) as usize / AHEAD * AHEAD;
    ready();
    let began = Instant::now();
    let mut reader = server.try_clone().map_err(failed)?;
    let reading = std::thread::spawn(move || read(&mut reader, reply.as_bytes(), rounds));
    for _ in 0..rounds / AHEAD {
        server.write_all(&round.repeat(AHEAD)).map_err(failed)?;
    }
    reading.join().map_err(|_| "the reader panicked".to_owned())?.map_err(failed)?;
    let pairs = u32::try_from(rounds * KEYS).unwrap_or(u32::MAX);
    let mut outcome = Outcome { locks: u64::from(pairs), ..Outcome::default() };
    outcome.set("pairs/s", f64::from(pairs) / began.elapsed().as_secs_f64());
    Ok(outcome)
}

/// A command in its wire format.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// The reply to `SCRIPT LOAD`.
fn digest_of(server: &mut TcpStream) -> std::io::Result<String> {
    let mut reply = [0; "$40\r\n".len() + 40 + "\r\n".len()];
    server.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).trim_start_matches("$40\r\n").trim_end().to_owned())
}

/// Reads the replies of all rounds. All claims are granted and all keys deleted, so each round has the same `reply`.
fn read(server: &mut TcpStream, reply: &[u8], rounds: usize) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut wanted = reply.iter().cycle().take(reply.len() * rounds);
    let mut left = reply.len() * rounds;
    while left > 0 {
        let count = server.read(&mut buffer)?;
        let read = buffer.iter().take(count);
        if count == 0 || !wanted.by_ref().take(count).eq(read) {
            return Err(std::io::Error::other("a claim was refused, a release failed, or the server is gone"));
        }
        left -= count;
    }
    Ok(())
}
