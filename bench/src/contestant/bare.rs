//! No lock at all: the cost of the bodies alone, one after another.

use super::Contestant;

#[derive(Clone, Debug)]
pub(crate) struct Bare;

impl Contestant for Bare {
    const SERIAL: bool = true;

    async fn connect(_url: &str) -> Result<Self, String> {
        Ok(Self)
    }

    async fn with<T: Send + 'static>(
        &self,
        _key: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        Ok(body.await)
    }
}
