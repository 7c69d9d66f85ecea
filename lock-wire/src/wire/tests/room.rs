//! More commands than there is room for.

use super::*;
use crate::mutants::{Mutant, Seeded};

fn begin<'a>(wire: &'a Wire, command: &'a redis::Cmd) -> Sent<'a> {
    wire.until(None).beginning(true).send(command)
}

/// A connection without room for another command that begins something. Its server has read all commands.
async fn full() -> (Wire, DuplexStream, Vec<tokio::task::JoinHandle<Result<Value, NoReply>>>) {
    let (wire, mut far, _) = connected().await;
    let begun: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let wire = wire.clone();
            tokio::spawn(async move { begin(&wire, &get("k")).await })
        })
        .collect();
    read(&mut far, IN_FLIGHT).await;
    (wire, far, begun)
}

/// Reads this many commands.
async fn read(far: &mut DuplexStream, count: usize) {
    let mut seen = 0;
    while seen < count {
        // The buffer may cut a command: count its last letter.
        seen += sent_to(far).await.matches("k\r").count();
    }
    assert_eq!(seen, count);
}

/// Waits for room, begins something, and reports its number.
fn waiting(wire: &Wire, number: u32, heard: &Heard) {
    let (wire, heard) = (wire.clone(), heard.clone());
    tokio::spawn(async move {
        wire.room().await;
        heard.note(&number.to_string());
        begin(&wire, &get("k")).await
    });
}

#[tokio::test]
async fn waiters_for_room_are_woken_in_order_and_nobody_overtakes() {
    let (wire, mut far, _begun) = full().await;
    let heard = Heard::default();
    for number in 0..5 {
        waiting(&wire, number, &heard);
        settled().await;
    }
    for (answered, called) in [(1, "0"), (2, "0 1 2"), (2, "0 1 2 3 4")] {
        far.write_all(":1\r\n".repeat(answered).as_bytes()).await.unwrap();
        // It starts at once, and finds no room.
        let overtaking = tokio::spawn({
            let wire = wire.clone();
            async move { begin(&wire, &get("k")).await }
        });
        read(&mut far, answered).await;
        assert_eq!(heard.all(), called);
        assert!(matches!(overtaking.await.unwrap(), Err(NoReply::NoRoom)));
    }
}

/// Commands that release or renew a lock.
#[tokio::test]
async fn what_begins_nothing_is_sent_without_room() {
    let (wire, mut far, _begun) = full().await;
    let command = get("k");
    let mut ending = Box::pin(wire.until(None).send(&command));
    assert!(futures_util::poll!(&mut ending).is_pending());
    read(&mut far, 1).await;
    assert!(matches!(begin(&wire, &command).await, Err(NoReply::NoRoom)));
    // A command whose reply is not read is repeated in another way.
    wire.send_unread(&get("unread"), || {});
    far.write_all(":1\r\n".repeat(IN_FLIGHT + 1).as_bytes()).await.unwrap();
    assert_eq!(ending.await.unwrap(), Value::Int(1));
}

#[tokio::test]
async fn a_waiter_for_room_learns_that_the_connection_has_ended() {
    let (wire, far, begun) = full().await;
    let mut waiting = Box::pin(wire.room());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    drop(far);
    timeout(LONG, waiting).await.unwrap();
    assert!(matches!(begin(&wire, &get("k")).await, Err(NoReply::Ended(_))));
    assert!(join_all(begun).await.into_iter().all(|begun| matches!(begun.unwrap(), Err(NoReply::Ended(_)))));
}

#[tokio::test]
async fn a_waiter_for_room_learns_that_another_connection_has_replaced_this_one() {
    for (bug, is_told) in [(None, true), (Some(Mutant::RoomOfFormerConnection), false)] {
        let _seeded = Seeded::begin(bug);
        let (wire, _far, _begun) = full().await;
        let mut waiting = Box::pin(wire.room());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        wire.give_up();
        settled().await;
        assert_eq!(futures_util::poll!(&mut waiting).is_ready(), is_told, "{bug:?}");
    }
}

/// Its thread is busy, or its future waits behind another one, or it was dropped.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_woken_and_not_polled_keeps_nobody_waiting() {
    for (bug, is_gone, is_called) in
        [(None, true, true), (None, false, true), (Some(Mutant::CalledForRoomOnce), false, false)]
    {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, _begun) = full().await;
        tokio::spawn(wire.watch());
        let mut first = Box::pin(wire.room());
        assert!(futures_util::poll!(&mut first).is_pending());
        let heard = Heard::default();
        waiting(&wire, 2, &heard);
        settled().await;
        far.write_all(b":1\r\n").await.unwrap();
        settled().await;
        assert_eq!(heard.all(), "");
        if is_gone {
            drop(first);
        } else {
            tokio::time::sleep(CALLED_AGAIN_AFTER * 2).await;
        }
        settled().await;
        assert_eq!(heard.all() == "2", is_called, "{bug:?}");
    }
}

/// The server reads a byte now and then, for an hour. Commands are written at the same rate, and the output is never empty.
#[tokio::test(start_paused = true)]
async fn an_hour_of_a_slow_socket_needs_no_more_room_than_a_second() {
    for (bug, is_bounded) in [(None, true), (Some(Mutant::WrittenIsKept), false)] {
        let _seeded = Seeded::begin(bug);
        let (near, mut far) = duplex(64);
        let wire = Wire::over(Socket::of(near), ());
        settled().await;
        let text = "v".repeat(1000);
        let command = cmd("SET").arg("k").arg(&text).clone();
        let mut most = 0;
        let mut sending: std::collections::VecDeque<_> = std::collections::VecDeque::new();
        for _ in 0..3600 {
            while wire.0.0.lock().output.unsent() < 2 * text.len() {
                let mut sent = Box::pin(wire.until(None).send(&command));
                assert!(futures_util::poll!(&mut sent).is_pending());
                sending.push_back(sent);
            }
            let mut bytes = [0; 100];
            assert!(far.read(&mut bytes).await.unwrap() > 0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            most = most.max(wire.0.0.lock().output.room());
            assert!(!wire.0.0.lock().output.is_flushed());
        }
        assert_eq!(most <= 16 * text.len(), is_bounded, "{bug:?}: {most}");
    }
}

/// A stalled server, and tasks that give up: each removes its command again.
#[tokio::test]
async fn what_does_not_fit_into_the_socket_is_no_longer_begun_and_is_taken_back() {
    let (near, _far) = duplex(64);
    let wire = Wire::over(Socket::of(near), ());
    settled().await;
    let text = "v".repeat(1000);
    let command = cmd("SET").arg("k").arg(&text).clone();
    let mut sending = Vec::new();
    loop {
        let mut sent = Box::pin(begin(&wire, &command));
        match futures_util::poll!(&mut sent) {
            std::task::Poll::Pending => sending.push(sent),
            std::task::Poll::Ready(reply) => break assert!(matches!(reply, Err(NoReply::NoRoom))),
        }
    }
    assert!(sending.len() < 100, "{}", sending.len());
    let mut waiting = Box::pin(wire.room());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    sending.truncate(1);
    assert!(wire.0.0.lock().output.unsent() <= 4 * text.len());
    timeout(LONG, waiting).await.unwrap();
}
