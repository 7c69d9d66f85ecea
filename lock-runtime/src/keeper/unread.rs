//! Rule L7, for a blocked runtime: the keeper finds a grant that the runtime does not read.
//!
//! Grants go to the callers' connection, which their runtime reads. When all threads of that runtime are blocked, only the keeper can
//! notice an unread grant. It looks only while a task waits in the store's queue. As long as the runtime runs, that costs no command and no
//! message.

use std::sync::{Arc, Weak};

use super::sending::repeat_asks;
use super::{Keeper, batches_of_asks};
use crate::local::Core;
use crate::store::Store;
use crate::timing::{READER_ASKED_EVERY, UNREAD_ASKED_EVERY};

/// Looks until the manager is gone.
pub(super) async fn watch(keeper: Arc<Keeper>, core: Weak<Core>) {
    loop {
        keeper.schedule.watching().await;
        while keeper.schedule.is_watching() {
            tokio::time::sleep(READER_ASKED_EVERY).await;
            let Some(core) = core.upgrade() else { return };
            if core.store().probe_reader() {
                ask_for(&keeper, &core);
            }
        }
        if core.strong_count() == 0 {
            return;
        }
    }
}

/// Repeats all asks that wait in the store's queue.
fn ask_for(keeper: &Arc<Keeper>, core: &Arc<Core>) {
    let deadline = keeper.by();
    let slots = keeper.schedule.watched().into_iter().filter(|slot| !keeper.store.connection(slot.key()).is_cut_off);
    let asks = slots.flat_map(|slot| {
        let asks = slot.repeatable_asks(UNREAD_ASKED_EVERY, deadline);
        asks.into_iter().map(move |ask| (Arc::clone(&slot), ask))
    });
    for batch in batches_of_asks(keeper, asks.collect()) {
        let (keeper, core) = (Arc::clone(keeper), Arc::downgrade(core));
        tokio::spawn(async move {
            repeat_asks(&keeper, &core, batch).await;
        });
    }
}
