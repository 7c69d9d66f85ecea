//! Checks of the test servers: sentinels and clusters behave as the tests of topologies need it.

use std::time::Duration;

use tests::cluster::Cluster;
use tests::patience::eventually_blocking;
use tests::sentinel::Sentinels;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn the_sentinels_replace_a_master_that_dies_and_demote_it_when_it_comes_back() {
    let mut sentinels = Sentinels::start(1);
    assert_eq!(sentinels.master(), Some(0));
    sentinels.server_mut(0).kill();
    assert_eq!(sentinels.await_another(0), 1);
    sentinels.server_mut(0).restart();
    sentinels.settle();
    assert_eq!(sentinels.master(), Some(1));
}

#[test]
fn a_failover_that_is_asked_for_changes_the_master() {
    let sentinels = Sentinels::start(2);
    let first = sentinels.fail_over();
    assert_ne!(first, 0);
    sentinels.settle();
    assert_ne!(sentinels.fail_over(), first);
}

#[test]
fn a_replica_whose_replication_is_cut_is_promoted_without_the_last_writes() {
    let mut sentinels = Sentinels::start(1);
    sentinels.server(0).tell("SET before 1");
    assert_eq!(sentinels.server(0).ask::<u32>("WAIT 1 1000"), 1);
    sentinels.cut_replication();
    sentinels.server(0).tell("SET after 1");
    sentinels.server_mut(0).kill();
    assert_eq!(sentinels.await_another(0), 1);
    assert_eq!(sentinels.server(1).ask::<u32>("GET before"), 1);
    assert_eq!(sentinels.server(1).ask::<Option<u32>>("GET after"), None);
}

#[test]
fn a_cluster_serves_every_slot_and_moves_one() {
    let cluster = Cluster::start();
    let slot = cluster.slot("p:k");
    let owner = cluster.owner(slot);
    cluster.node(owner).tell("SET p:k 1");
    let other = (owner + 1) % 3;
    cluster.migrate(slot, other);
    assert_eq!(cluster.node(other).ask::<u32>("GET p:k"), 1);
    assert!(cluster.node(owner).try_ask::<u32>("GET p:k").is_err());
    cluster.settle();
}

#[test]
fn a_replica_takes_over_from_a_cluster_master_that_dies() {
    let mut cluster = Cluster::with(3, true);
    cluster.fail_over_to(4);
    cluster.settle();
    cluster.node_mut(0).kill();
    cluster.await_master(3);
    cluster.node_mut(0).restart();
    eventually_blocking("the old master is a replica", LONG, || {
        cluster.node(0).ask::<String>("INFO replication").contains("role:slave")
    });
    cluster.settle();
}
