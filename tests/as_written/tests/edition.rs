//! Temporaries in a locked fn are dropped at the time that the edition of the fn's crate defines.

use as_written::{a_blocking_fn, an_async_fn, one_async_block, without_a_lock, work_before_a_future, Dropped};
use lock_runtime::LockManager;

#[test]
fn what_the_last_expression_makes_is_dropped_as_the_edition_says() {
    LockManager::in_memory().install().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let dropped = Dropped::default();
    let taken = || std::mem::take(&mut *dropped.lock().unwrap());
    let _ = without_a_lock(&dropped);
    let expected = taken();
    assert_eq!(expected, ["variable", "made last"]);
    runtime.block_on(an_async_fn(&dropped)).unwrap();
    assert_eq!(taken(), expected, "async fn");
    a_blocking_fn(&dropped).unwrap();
    assert_eq!(taken(), expected, "blocking fn");
    runtime.block_on(one_async_block(&dropped)).unwrap();
    assert_eq!(taken(), expected, "async block");
    runtime.block_on(work_before_a_future(&dropped)).unwrap();
    assert_eq!(taken(), expected, "work before a future");
}
