//! The name of the lock: prefix and key, from options or from marked arguments.

use axum::extract::Path;
use lock_runtime::cache_lock;

use crate::behaviour::{Result, alone};

const PREFIX: &str = "name:const";

#[cache_lock(prefix = "name", key = key, guard = guard)]
async fn literal(key: &str) -> Result<String> {
    Ok(guard.key().to_owned())
}

#[cache_lock(prefix = PREFIX, key = (a, b.0.len(), "x"), guard = guard)]
async fn tuple(a: String, b: (String, u8)) -> Result<String> {
    drop((a, b));
    Ok(guard.key().to_owned())
}

#[cache_lock(key = 1, guard = guard)]
async fn by_default() -> Result<String> {
    Ok(guard.key().to_owned())
}

#[cache_lock(prefix = "name", guard = guard)]
async fn marked(
    #[locked_object] a: String,
    _between: u8,
    #[locked_complex_object(field = "1.0")] b: &(u8, (u32, u8)),
    #[locked_object] Path(c): Path<u8>,
) -> Result<String> {
    drop(a);
    let _ = (b, c);
    Ok(guard.key().to_owned())
}

#[cache_lock(prefix = "name", key = (a, a, a, a, a, a, a, a, a, (a, (a,))), guard = guard)]
async fn many(a: u8) -> Result<String> {
    Ok(guard.key().to_owned())
}

#[tokio::test]
async fn the_key_is_what_was_written_or_marked_in_order() {
    alone(async {
        assert_eq!(literal("a:b").await.unwrap(), "name:a%3Ab");
        assert_eq!(tuple("a".into(), ("bcd".into(), 1)).await.unwrap(), "name:const:a:3:x");
        assert_eq!(marked("a".into(), 0, &(1, (2, 3)), Path(4)).await.unwrap(), "name:a:2:4");
        assert_eq!(many(1).await.unwrap(), format!("name{}", ":1".repeat(11)));
    })
    .await;
}

#[tokio::test]
async fn the_default_prefix_is_the_path_of_the_fn() {
    let expected = concat!(module_path!(), "::by_default:1");
    assert_eq!(alone(by_default()).await.unwrap(), expected);
}
