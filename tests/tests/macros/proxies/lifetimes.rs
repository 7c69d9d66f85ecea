//! Lifetimes, `where` clauses, `impl Trait` and unnamed arguments.

use std::borrow::Cow;

use lock_runtime::{LockError, LockKey, LockManager, cache_lock};

#[cache_lock(proxy = LockedTexts, prefix = "lifetimes")]
trait Texts<'t> {
    #[cache_lock(key = name)]
    async fn find<'s, 'n: 's>(&'s self, name: &'n str, fallback: &'s str) -> Result<Cow<'s, str>, LockError>;

    #[cache_lock(key = (id, name))]
    async fn put(
        &mut self,
        #[allow(unused, reason = "an attribute on an argument stays where it is")] id: impl LockKey + Copy,
        name: &str,
        text: impl Into<Cow<'t, str>>,
        _: u64,
    ) -> Result<Cow<'t, str>, LockError>;

    #[cache_lock(key = "all", on_fail = Vec::new())]
    async fn all(&self) -> Vec<Cow<'t, str>>;

    #[cfg(any())]
    async fn never(&self, nothing: Nothing);

    #[deprecated]
    fn old(&self) {}

    #[cfg_attr(all(), deprecated, must_use, allow(clippy::unused_self, reason = "a method with a receiver"))]
    fn older(&self) -> u8 {
        1
    }
}

#[derive(Default)]
struct Book<'t>(Vec<(String, Cow<'t, str>)>);

impl<'t> Texts<'t> for Book<'t> {
    async fn find<'s, 'n: 's>(&'s self, name: &'n str, fallback: &'s str) -> Result<Cow<'s, str>, LockError> {
        let found = self.0.iter().find(|(known, _)| known == name);
        Ok(found.map_or(Cow::Borrowed(fallback), |(_, text)| Cow::Borrowed(text)))
    }

    async fn put(
        &mut self,
        _: impl LockKey + Copy,
        name: &str,
        text: impl Into<Cow<'t, str>>,
        _: u64,
    ) -> Result<Cow<'t, str>, LockError> {
        self.0.push((name.to_owned(), text.into()));
        Ok(self.0.last().unwrap().1.clone())
    }

    async fn all(&self) -> Vec<Cow<'t, str>> {
        self.0.iter().map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test]
async fn what_is_borrowed_is_passed_on() {
    let text = "a text".to_owned();
    let mut texts = LockedTexts::with_manager(Book::default(), LockManager::in_memory());
    assert_eq!(texts.put(1, "a", text.as_str(), 2).await.unwrap(), "a text");
    let name = "a".to_owned();
    assert_eq!(texts.find(&name, "none").await.unwrap(), "a text");
    assert_eq!(texts.find("b", "none").await.unwrap(), "none");
    assert_eq!(texts.all().await.len(), 1);
    #[expect(deprecated, reason = "the proxy passes it on, and gives no warning itself")]
    texts.old();
    #[expect(deprecated, reason = "in a `cfg_attr`, too")]
    let older = texts.older();
    assert_eq!(older, 1);
}
