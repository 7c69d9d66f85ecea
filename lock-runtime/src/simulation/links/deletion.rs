//! Rule 26: a release by the server's own command, and what follows it.

use super::*;
use crate::simulation::servers::model_server;

/// On this server every script fails at its first call.
fn without_scripts(name: &'static str) -> ModelServer {
    let mut server = model_server(None, Some(name));
    server.patch("redis.call, redis.pcall", "error('a script')");
    server
}

impl Scene {
    async fn claim(&self) -> Release {
        let ask = self.ask(COMMAND);
        assert!(matches!(self.store.claim(&ask, Deadline::after(COMMAND)).await, Ok(Answer::Granted(_))));
        Release { contended: false, ..ask.withdrawal() }
    }

    async fn end(&self, release: &Release) -> Ownership {
        self.store.release_one(release, Deadline::after(COMMAND)).await.unwrap()
    }

    fn has(&self, key: &str) -> bool {
        self.network.server(ModelServer::snapshot).iter().any(|(name, _)| name == key)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_waits_for_is_released_by_the_servers_own_command() {
    for name in ["DELIFEQ", "DELEX"] {
        let scene = Scene::on(without_scripts(name), Duration::ZERO).await;
        let release = scene.claim().await;
        assert_eq!(scene.end(&release).await, Ownership::Owned);
        assert!(!scene.has("p:k"));
    }
}

/// The owner does not know of the waiter yet.
#[tokio::test(start_paused = true)]
async fn a_deleted_lock_passes_on_to_its_waiter() {
    for (bug, is_passed_on) in [(None, true), (Some(Mutant::DeletedUnseen), false)] {
        let _seeded = Seeded::begin(bug);
        let scene = Scene::on(model_server(None, Some("DELIFEQ")), Duration::ZERO).await;
        let release = scene.claim().await;
        let waiter = scene.ask(COMMAND);
        let answer = exactly_one(scene.store.ask(std::slice::from_ref(&waiter), Deadline::after(COMMAND)).await);
        assert!(matches!(answer, Ok(Answer::Busy(_))), "{answer:?}");
        assert_eq!(scene.end(&release).await, Ownership::Owned);
        assert_eq!(scene.has("p:k"), is_passed_on, "{bug:?}");
        let next = scene.end(&waiter.withdrawal()).await;
        assert_eq!(next == Ownership::Owned, is_passed_on, "{bug:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_owners_is_not_deleted() {
    let scene = Scene::on(model_server(None, Some("DELIFEQ")), Duration::ZERO).await;
    let release = scene.claim().await;
    for words in [&["SET", "p:k", "another"][..], &["DEL", "p:k"], &["RPUSH", "p:k", "an item"]] {
        scene.network.execute(words);
        assert_eq!(scene.end(&release).await, Ownership::NotOwned, "{words:?}");
    }
    assert!(scene.has("p:k"));
}

/// The connection breaks after the server has executed the release. The repeated release finds nothing to delete.
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_answer_is_lost_may_have_been_the_owners() {
    let scene = Scene::on(model_server(None, Some("DELIFEQ")), Duration::ZERO).await;
    let release = scene.claim().await;
    let calm = Conditions::default();
    scene.network.set_conditions(Conditions { cut_after: 1.0, ..calm });
    let released = scene.store.release_one(&release, Deadline::after(COMMAND));
    let (released, ()) = tokio::join!(released, async {
        sleep(COMMAND / 100).await;
        scene.network.set_conditions(calm);
    });
    assert!(!scene.has("p:k"));
    assert!(released.is_err() || released.unwrap() != Ownership::NotOwned);
}
