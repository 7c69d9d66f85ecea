#[allow(unused_variables)]
pub async fn buy(id: u64, #[cfg(test)] other: u64) -> u64 {
    id
}
::core::compile_error! {
    "unknown option `shards`: the options are prefix, key, keys, timeout_ms, timeout_s, timeout, expire_ms, expire_s, expire, linger_ms, linger_s, linger, renew, mode, permits, max_hold_ms, max_hold_s, max_hold, at_least_ms, at_least_s, at_least, lock_delay_ms, lock_delay_s, lock_delay, note, on_fail, on_lost, on_busy, manager, guard, fenced, proxy, crate"
}
::core::compile_error! {
    "`timeout_ms` takes an integer: for a text with a unit write `timeout = \"2s\"`"
}
