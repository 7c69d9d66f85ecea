//! Lost replies and server failures while a lock is handed on as a ticket, or taken by the newest request.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LockTicket, OnBusy};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Fault, Proxy};
use tests::server::Server;

use crate::{LONG, assert_granted_soon, manager, wait_until_confirmed, warm_up};

/// Longer than a test takes.
const KEPT: Duration = Duration::from_mins(1);
/// How long a holder that does not learn of a force delays others: one claim, and a second for waiters.
const UNTOLD: Duration = Duration::from_millis(3500);

const FAULTS: [Fault; 3] = [Fault::DropReply, Fault::CutAfterForward, Fault::CutBeforeForward];

async fn give(manager: &LockManager) -> Result<LockTicket, LockError> {
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    guard.into_ticket(KEPT).await
}

/// Makes the server cache all scripts for tickets.
async fn warm_up_tickets(managers: [&LockManager; 2]) {
    warm_up(&managers).await;
    for manager in managers {
        manager.adopt(give(manager).await.unwrap()).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn row_72_a_giver_whose_reply_is_lost_has_a_ticket_or_leaves_nothing() {
    for fault in FAULTS {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        let (giver, worker) = (manager(&proxy.url()).await, manager(&server.url()).await);
        warm_up_tickets([&giver, &worker]).await;
        let guard = giver.lock("p", "k").acquire().await.unwrap();
        wait_until_confirmed(&guard, LONG).await;
        proxy.plan("EVALSHA", fault.clone());
        let start = Instant::now();
        let given = guard.into_ticket(KEPT).await;
        assert!(proxy.is_through() && start.elapsed() < Duration::from_secs(3), "{fault:?}: {:?}", start.elapsed());
        match given {
            Ok(ticket) => worker.adopt(ticket).await.unwrap().release().await.unwrap(),
            Err(error) => assert!(matches!(error, LockError::Backend { .. }), "{fault:?}: {error:?}"),
        }
        assert_granted_soon(&worker).await.release().await.unwrap();
        eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    }
}

#[tokio::test]
async fn row_72_an_adopter_whose_reply_is_lost_has_the_lock_once_or_leaves_nothing() {
    for fault in FAULTS {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        let (giver, worker) = (manager(&server.url()).await, manager(&proxy.url()).await);
        warm_up_tickets([&giver, &worker]).await;
        let ticket = give(&giver).await.unwrap();
        proxy.plan("EVALSHA", fault.clone());
        let start = Instant::now();
        let adopted = worker.adopt(ticket.clone()).await;
        assert!(proxy.is_through() && start.elapsed() < Duration::from_secs(3), "{fault:?}: {:?}", start.elapsed());
        match adopted {
            Ok(guard) => {
                assert!(giver.adopt(ticket).await.unwrap_err().is_lost(), "{fault:?}: the ticket is used up");
                wait_until_confirmed(&guard, LONG).await;
                guard.release().await.unwrap();
            }
            Err(error) => assert!(matches!(error, LockError::Backend { .. }), "{fault:?}: {error:?}"),
        }
        assert_granted_soon(&giver).await.release().await.unwrap();
        eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    }
}

#[tokio::test]
async fn row_73_a_ticket_outlives_a_server_that_restarts_with_its_data() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (giver, worker) = (manager(&server.url()).await, manager(&server.url()).await);
    let ticket = give(&giver).await.unwrap();
    server.kill();
    server.restart();
    let guard = worker.adopt_with(ticket, |request| request.timeout(LONG)).await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_granted_soon(&giver).await.release().await.unwrap();
}

#[tokio::test]
async fn row_73_a_ticket_is_lost_with_the_data_of_its_server() {
    let mut server = Server::start();
    let (giver, worker) = (manager(&server.url()).await, manager(&server.url()).await);
    let ticket = give(&giver).await.unwrap();
    server.kill();
    server.restart();
    let next = giver.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let refused = worker.adopt_with(ticket.clone(), |request| request.timeout(LONG)).await.unwrap_err();
    assert!(refused.is_lost(), "{refused:?}");
    assert!(worker.release_ticket(ticket).await.unwrap_err().is_lost());
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn row_74_a_holder_that_cannot_be_reached_delays_the_newest_by_a_claim() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let (older, newer) = (manager(&proxy.url()).await, manager(&server.url()).await);
    warm_up(&[&older, &newer]).await;
    let guard = older.lock("p", "k").fenced(true).acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let before = guard.fencing_token();
    proxy.cut_off();
    let start = Instant::now();
    let newest = newer.lock("p", "k").timeout(LONG).fenced(true).on_busy(OnBusy::Replace).acquire().await.unwrap();
    assert!(start.elapsed() < UNTOLD + NOISE, "{:?}", start.elapsed());
    assert!(newest.fencing_token() > before);
    proxy.rejoin();
    tokio::time::timeout(LONG, guard.lost()).await.expect("the older holder learns of it when it is connected again");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    assert!(newest.is_valid());
    newest.release().await.unwrap();
}
