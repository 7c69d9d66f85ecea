//! Types that are keys.

use lock_runtime::{LockGuard, LockKey, LockManager, cache_lock};

use crate::shapes::{Result, Seat};

#[derive(LockKey, Debug, Clone, Copy)]
enum Room {
    Lobby,
    Numbered(u32),
    Suite {
        #[lock_key]
        floor: u8,
        #[lock_key]
        wing: char,
        beds: u8,
    },
}

#[derive(LockKey, Debug)]
struct Tagged<'a, T, const N: usize>
where
    T: Clone,
{
    #[lock_key]
    name: &'a str,
    #[lock_key]
    inner: Option<T>,
    rest: [u8; N],
}

/// A recursive type.
#[derive(LockKey, Debug)]
enum Path<T> {
    Root,
    Below {
        #[lock_key]
        parent: Box<Path<T>>,
        #[lock_key]
        name: T,
    },
}

#[tokio::test]
async fn derived_keys_write_their_marked_fields() -> Result<()> {
    let locks = LockManager::in_memory();
    let name = async |key: &dyn LockKey| -> Result<String> {
        let guard: LockGuard = locks.lock("p", key).acquire().await?;
        Ok(guard.key().to_owned())
    };
    let seat = Seat { train: "ice".to_owned(), number: 7, price: 3 };
    assert_eq!(name(&seat).await?, "p:ice:7");
    assert_eq!(name(&Room::Lobby).await?, "p:Lobby");
    assert_eq!(name(&Room::Numbered(7)).await?, "p:Numbered:7");
    let suite = Room::Suite { floor: 1, wing: 'b', beds: 2 };
    assert_eq!(name(&suite).await?, "p:Suite:1:b");
    if let Room::Suite { beds, .. } = suite {
        assert_eq!(beds, 2);
    }
    let tagged = Tagged { name: "n", inner: Some(seat), rest: [0; 1] };
    assert_eq!(name(&tagged).await?, "p:n:ice:7");
    assert_eq!(tagged.rest, [0]);
    let home = Path::Below { parent: Box::new(Path::Root), name: "home" };
    assert_eq!(name(&home).await?, "p:Below:Root:home");
    Ok(())
}

#[cache_lock(prefix = "p", key = (a, b, a, b, a, b, a, b, a, b, a, b), guard = guard)]
async fn twelve_parts(a: u8, b: u8) -> Result<String> {
    Ok(guard.key().to_owned())
}

#[cache_lock(prefix = "p", key = (a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a), guard = guard)]
async fn twenty_five_parts(a: u8, b: u8) -> Result<String> {
    Ok(guard.key().to_owned())
}

/// A key with more parts than a tuple may have is named like a tuple of that length.
#[tokio::test]
async fn a_key_may_have_any_number_of_parts() -> Result<()> {
    let parts = |count: usize| (0..count).map(|part| if part % 2 == 0 { ":1" } else { ":2" }).collect::<String>();
    LockManager::in_memory()
        .scope(async {
            assert_eq!(twelve_parts(1, 2).await?, format!("p{}", parts(12)));
            assert_eq!(twenty_five_parts(1, 2).await?, format!("p{}", parts(25)));
            Ok(())
        })
        .await
}
