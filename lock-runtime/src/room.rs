//! A room for each thread, in which a text is put together: a name or a token then costs one allocation.

use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static ROOM: Cell<String> = const { Cell::new(String::new()) };
}

/// An empty text that most likely has its memory already.
pub(crate) fn take_room() -> String {
    // A thread that ends has none any more.
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.clear();
    room
}

/// Copies the text, and keeps its memory for the next one.
pub(crate) fn finish(room: String) -> Arc<str> {
    let text = Arc::from(room.as_str());
    let _ = ROOM.try_with(|kept| kept.set(room));
    text
}
