//! [`Installed`]: the default manager of the process.

use std::sync::OnceLock;

use crate::LockError;
use crate::engine::Engine;
use crate::opaque::Opaque;

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// A manager that was installed.
#[derive(Debug)]
struct Installed {
    engine: Opaque<Engine>,
    /// The manager that a child of this process installed, because the child can't use its parent's manager.
    in_child: OnceLock<Box<Installed>>,
}

impl Installed {
    /// The manager that was installed last.
    fn last(&self) -> &Self {
        let mut last = self;
        while let Some(next) = last.in_child.get() {
            last = next;
        }
        last
    }
}

pub(crate) fn install(engine: &Opaque<Engine>) -> Result<(), LockError> {
    let new = Installed { engine: engine.clone(), in_child: OnceLock::new() };
    let Some(first) = INSTALLED.get() else {
        return INSTALLED.set(new).map_err(|_| LockError::AlreadyInstalled);
    };
    let last = first.last();
    if !last.engine.core().is_inherited() {
        return Err(LockError::AlreadyInstalled);
    }
    last.in_child.set(Box::new(new)).map_err(|_| LockError::AlreadyInstalled)
}

pub(super) fn installed() -> Option<Opaque<Engine>> {
    INSTALLED.get().map(|first| first.last().engine.clone())
}
