//! Scripts for the conversions between Lua and the server that the lock's own scripts don't use.

use tests::server::{Kind, Server};

use crate::model_server::pair::Pair;
use crate::model_server::steps::{Step, What};

const TEXTS: &[&str] = &[
    // What a script returns.
    "return 3.9",
    "return -3.9",
    "return true",
    "return false",
    "return nil",
    "return { 1, 'a', nil, 2 }",
    "return { false, true, { 1 }, { name = 1 } }",
    "return { ok = 'fine' }",
    "return { err = 'BAD' }",
    "return { 1, { err = 'BAD luck' }, { ok = 'fine' } }",
    "return redis.status_reply('fine')",
    "return redis.error_reply('BAD luck')",
    "return redis.error_reply('-BAD luck')",
    "return redis.error_reply('bad')",
    "return { KEYS[1], ARGV[1], #KEYS, #ARGV }",
    // Replies of commands inside the script.
    "return redis.call('SET', 'a', 1).ok",
    "return redis.call('SET', 'a', 1)",
    "return { redis.call('GET', 'none') == false, type(redis.call('EXISTS', 'none')) }",
    "redis.call('SET', 'a', 0.5) return redis.call('GET', 'a')",
    "redis.call('SET', 'a', 1e15) return redis.call('GET', 'a')",
    "return #redis.call('TIME')",
    "redis.call('RPUSH', 'list', 1) return { redis.call('MGET', 'a', 'none', 'list'), #redis.call('MGET', 'none', 'list') }",
    "local read = redis.call('MGET', 'none') return { read[1] == false, read.err == nil }",
    "return redis.pcall('MGET')",
    "redis.call('SET', 'a', 'abc') return { redis.call('GETRANGE', 'a', 0, 1), redis.call('GETRANGE', 'a', '1', '9') }",
    "return { redis.call('GETRANGE', 'a', 7, 9), redis.call('GETRANGE', 'none', 0, 9), redis.call('EXISTS', 'a', 'none') }",
    "redis.call('RPUSH', 'list', 1) return redis.pcall('GETRANGE', 'list', 0, 1)",
    "redis.call('RPUSH', 'l', 1, 2) return redis.call('LRANGE', 'l', 0, -1)",
    "redis.call('RPUSH', 'r', 1, 2, 1, 1) return redis.call('LREM', 'r', -2, 1)",
    "return { redis.call('LREM', 'r', 0, 1), redis.call('LPOS', 'r', 2), redis.call('LREM', 'r', 1, 2), redis.call('EXISTS', 'r') }",
    "return redis.pcall('LLEN', 'a')",
    "return redis.pcall('LLEN', 'a').err",
    "return type(redis.pcall('LLEN', 'a'))",
    "return redis.pcall('LLEN')",
    "return redis.pcall('NONE')",
    "return redis.pcall('SUBSCRIBE', 'a')",
    "return redis.acl_check_cmd('GET', 'a')",
    // Errors that it raises.
    "\nerror('bad')",
    "error({ err = 'BAD luck' })",
    "local a\nreturn a.b",
    "local length = redis.call('LLEN', 'a')",
    "local function length(key)\n return 1 + redis.call('LLEN', key)\nend\nlocal a = length('a')",
    "local ran, problem = pcall(redis.call, 'LLEN', 'a') return { ran, problem }",
    "local ran, problem = pcall(error, 'bad') return { ran, problem }",
    "local text = string.rep()",
    "a = 1",
    "return a",
    "return { print, os and os.getenv, type(pcall) }",
];

pub(crate) fn compare(kind: Kind) {
    let server = Server::of(kind, &[]);
    let step = |text: &&str| Step {
        process: 0,
        what: What::ByHand(["EVAL", text, "1", "key", "value"].map(str::to_owned).into()),
    };
    let history: Vec<Step> = TEXTS.iter().map(step).collect();
    Pair::new(&server).run(&history).unwrap();
}
