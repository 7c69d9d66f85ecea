//! Holds of several keys: the time of each begins when all of them are held.

use super::lease::ActiveHold;
use super::resolved_request::ResolvedRequest;
use crate::clock::Moment;

impl ActiveHold {
    /// The same hold as if it had started `now`, by its own `request`.
    pub(super) fn begin(&mut self, request: &ResolvedRequest, now: Moment) {
        if self.readers.is_some() {
            // Readers have it together. It is renewed, and nobody's time began anew.
            self.body |= request.body;
        } else if let Some(holding) = self.holding.take() {
            *self = Self::of_request(self.id, self.path, holding, request, now);
        }
        // What keeps others out is noted when the lease is long enough for it.
        self.kept_until = None;
    }
}
