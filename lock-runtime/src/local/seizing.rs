//! How a task takes the turn in a slot from another task.

use std::sync::Arc;

use super::Core;
use super::slot::Slot;
use super::turn::Turn;
use crate::error::LossReason;
use crate::lock::Seized;
use crate::protocol::Release;

impl Core {
    /// The turn that was taken by `seize`. The ask of the task that had it is withdrawn.
    pub(super) fn seized_turn(&self, slot: &Arc<Slot>, id: u64, withdrawal: Option<Release>) -> Turn {
        if let Some(withdrawal) = withdrawal {
            self.withdraw(withdrawal);
        }
        Turn::new(slot, id)
    }

    /// Takes the turn for a request that replaces the holder (rule 25). A hold here ends by force.
    pub(super) fn seize_by_force(self: &Arc<Self>, key: &Arc<str>) -> Turn {
        loop {
            let (slot, seized) = self.table().seize(self, key);
            match seized {
                Seized::Turn(id, withdrawal) => return self.seized_turn(&slot, id, withdrawal),
                Seized::Leased(token) => self.revoke(&slot, Some(&token), LossReason::Forced),
            }
        }
    }
}
