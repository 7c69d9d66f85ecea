//! The metrics as a Prometheus exporter renders them, and the dashboard, the alert rules and the page that name them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lock_runtime::LockManager;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Has a lock of prefix `p` do everything once that a metric counts, in memory.
async fn play() -> PrometheusHandle {
    let recorder = PrometheusBuilder::new().set_buckets(&[0.001, 0.1, 10.0]).unwrap().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    let north = LockManager::builder().namespace("shop").in_memory();
    let south = LockManager::builder().namespace("shop").in_memory_with(&north).unwrap();
    let request = |locks: &LockManager| locks.lock("p", "secret-key").timeout(Duration::from_secs(2));
    let guard = request(&north).acquire().await.unwrap();
    request(&north).acquire().await.unwrap_err();
    let next = tokio::spawn(request(&north).acquire());
    tokio::task::yield_now().await;
    assert_eq!(value(&handle, "cache_lock_waiters"), "1");
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(value(&handle, "cache_lock_held"), "1");
    assert_eq!(value(&handle, "cache_lock_waiters"), "0");
    let waiting = tokio::spawn(request(&south).acquire());
    tokio::task::yield_now().await;
    next.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let short = request(&north).expire(Duration::from_secs(2)).renew(false).acquire().await.unwrap();
    short.lost().await;
    drop(short);
    let guard = request(&north).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    guard.release().await.unwrap();
    handle
}

/// The only sample of this name that has the prefix `p`, or no label, as it is rendered.
fn value(handle: &PrometheusHandle, name: &str) -> String {
    let text = handle.render();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let mut values = lines.filter_map(|rest| rest.strip_prefix("{prefix=\"p\"} ").or_else(|| rest.strip_prefix(' ')));
    let value = values.next().unwrap_or_else(|| panic!("no {name} in {text}")).to_owned();
    assert!(values.next().is_none(), "{text}");
    value
}

/// Every name that begins as ours do.
fn names(text: &str) -> BTreeSet<String> {
    let places = text.match_indices("cache_lock_").map(|(place, _)| place);
    let name =
        |place: usize| text[place..].split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap().to_owned();
    places.map(name).filter(|name| name != "cache_lock_").collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_metric_counts_and_only_the_prefix_is_a_label() {
    let handle = play().await;
    for (name, expected) in [
        ("cache_lock_acquired_total", "5"),
        ("cache_lock_handovers_total", "1"),
        ("cache_lock_handoffs_total", "1"),
        ("cache_lock_timeouts_total", "1"),
        ("cache_lock_lost_total", "1"),
        ("cache_lock_held", "0"),
        ("cache_lock_waiters", "0"),
        ("cache_lock_lingering", "0"),
        ("cache_lock_wait_seconds_count", "5"),
        ("cache_lock_hold_seconds_count", "5"),
        ("cache_lock_commands_total", "0"),
        ("cache_lock_reconnects_total", "0"),
    ] {
        assert_eq!(value(&handle, name), expected, "{name}: {}", handle.render());
    }
    // The confirmation, and one renewal after each third of the lease.
    let renewals: u64 = value(&handle, "cache_lock_renewals_total").parse().unwrap();
    assert!((3..=6).contains(&renewals), "{}", handle.render());
    assert!(!handle.render().contains("secret-key"), "{}", handle.render());
}

#[tokio::test(start_paused = true)]
async fn each_reader_whose_lease_is_lost_counts() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    let locks = LockManager::in_memory();
    let read = || locks.lock("p", "k").read().acquire();
    let (one, other) = (read().await.unwrap(), read().await.unwrap());
    let ((), forced) = tokio::join!(one.lost(), locks.force_release("p", "k"));
    assert!(forced.unwrap());
    drop((one, other));
    assert_eq!((value(&handle, "cache_lock_lost_total"), locks.stats().lost), ("2".to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn the_dashboard_the_alerts_and_the_page_name_what_the_exporter_renders() {
    let rendered = play().await.render();
    let samples = names(&rendered);
    let families: BTreeSet<_> = rendered.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let families: BTreeSet<_> = families.into_iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(families.len(), 13, "{families:?}");
    let dashboard = read("docs/telemetry/grafana.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    let alerts = read("docs/telemetry/alerts.yaml");
    for (file, text) in [("grafana.json", &dashboard), ("alerts.yaml", &alerts)] {
        let unknown: Vec<_> = names(text).into_iter().filter(|name| !samples.contains(name)).collect();
        assert!(unknown.is_empty(), "{file} names what the exporter does not render: {unknown:?}");
        assert!(names(text).len() > 5, "{file} is not read");
    }
    let shown = names(&dashboard);
    let page = names(&read("docs/telemetry.md"));
    for family in families {
        assert!(page.contains(family), "docs/telemetry.md does not have {family}");
        assert!(shown.iter().any(|name| name.starts_with(family)), "no panel shows {family}");
    }
    let invented: Vec<_> = page.iter().filter(|name| !samples.contains(*name)).collect();
    assert!(invented.is_empty(), "docs/telemetry.md names what the exporter does not render: {invented:?}");
}
