//! The surroundings of a running task: the default manager, and the locks that the task holds already.
//!
//! This is the only global state: one installed manager per process, and for each thread the scopes and bodies that its
//! running polls are inside of. A task starts outside of all of them, wherever it is polled. So re-entry does not leak
//! into work that runs beside its parent, or inside of the poll of an unrelated task.

use std::sync::Arc;

use crate::engine::Engine;
use crate::local::{Core, HoldHandle, Reentry};
use crate::opaque::Opaque;

mod inside;
mod installed;
mod task;
#[cfg(test)]
mod tests;

use inside::{Inside, Stack};
pub(crate) use installed::install;

thread_local! {
    static SCOPED: Stack<Opaque<Engine>> = const { Stack::new() };
    static HELD: Stack<Frame> = const { Stack::new() };
}

/// The manager of the enclosing scope, else the installed manager.
pub(crate) fn current() -> Option<Opaque<Engine>> {
    let scoped = SCOPED.try_with(|scoped| scoped.find(|engine| Some(engine.clone())));
    scoped.ok().flatten().or_else(installed::installed)
}

pub(crate) async fn with_manager<F: Future>(engine: Opaque<Engine>, inside: F) -> F::Output {
    Inside::new(&SCOPED, engine, inside).await
}

/// The keys of the locks of `core` that are held around the running task.
pub(crate) fn held_keys(core: &Arc<Core>) -> Vec<Arc<str>> {
    let mut keys = Vec::new();
    let all = |frame: &Frame| {
        keys.extend(frame.all().filter_map(|frame| frame.hold.key_in(core)));
        None::<()>
    };
    // A thread that is ending is not inside of any body.
    let _ = HELD.try_with(|held| held.find(all));
    keys
}

/// Whether the running task is inside of a body under a lock of `core`.
pub(crate) fn is_inside(core: &Arc<Core>) -> bool {
    let is_of = |frame: &Frame| frame.all().any(|frame| frame.hold.key_in(core).is_some()).then_some(());
    HELD.try_with(|held| held.find(is_of)).ok().flatten().is_some()
}

/// A lock that the running body holds.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    hold: HoldHandle,
    /// Of a nested body. The outermost body of a hold uses what the hold has.
    nested: Option<Arc<Reentry>>,
    /// The other locks of a body that holds several.
    others: Box<[Frame]>,
}

impl Frame {
    /// The frame of a body. A nested body has borrowed its hold.
    pub(crate) fn new(hold: HoldHandle, is_nested: bool) -> Self {
        Self { hold, nested: is_nested.then(Arc::default), others: Box::default() }
    }

    /// The same for a body that holds several locks.
    pub(crate) fn with_others(self, others: Box<[Self]>) -> Self {
        Self { others, ..self }
    }

    /// This frame, and those of the other locks.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&*self.others)
    }

    /// The innermost frame of the running task whose hold `is_meant` accepts.
    pub(crate) fn find(is_meant: impl Fn(&HoldHandle) -> bool) -> Option<Self> {
        let found = HELD.try_with(|held| held.find(|frame| frame.all().find(|frame| is_meant(&frame.hold)).cloned()));
        found.ok().flatten()
    }

    pub(crate) fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    pub(crate) fn inner(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.nested.as_deref().unwrap_or_else(|| self.hold.reentry()).get_or_init(Arc::default))
    }

    /// Runs `body` inside of this frame.
    pub(crate) fn run<T>(self, body: impl FnOnce() -> T) -> T {
        inside::run(&HELD, self, body)
    }

    /// A future that runs `body` inside of this frame, in each of its polls and while it is dropped.
    pub(crate) fn around<F: Future>(self, body: F) -> Inside<Self, F> {
        Inside::new(&HELD, self, body)
    }
}
