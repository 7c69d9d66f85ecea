//! The metrics as a Prometheus exporter renders them, and the dashboard, the alert rules and the docs that name them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_runtime::{LockManager, LockRequest};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Plays everything that a metric counts once, in memory, with locks of the prefix `p`.
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

/// The rendered value of the only sample of this name with the prefix `p` or no label.
fn value(handle: &PrometheusHandle, name: &str) -> String {
    let text = handle.render();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let mut values = lines.filter_map(|rest| rest.strip_prefix("{prefix=\"p\"} ").or_else(|| rest.strip_prefix(' ')));
    let value = values.next().unwrap_or_else(|| panic!("no {name} in {text}")).to_owned();
    assert!(values.next().is_none(), "{text}");
    value
}

/// Every name with our prefix.
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
        (r#"cache_lock_wait_seconds_count{prefix="p",outcome="granted"}"#, "5"),
        (r#"cache_lock_wait_seconds_count{prefix="p",outcome="busy"}"#, "1"),
        ("cache_lock_hold_seconds_count", "5"),
        ("cache_lock_commands_total", "0"),
        ("cache_lock_reconnects_total", "0"),
    ] {
        assert_eq!(value(&handle, name), expected, "{name}: {}", handle.render());
    }
    // The confirmation, then a renewal after each third of the lease.
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

/// Reads the manager's counts whenever something is counted. An exporter may do that if its registry and its page share a mutex.
struct Reads(Arc<OnceLock<LockManager>>);

impl Reads {
    fn read(&self) {
        if let Some(locks) = self.0.get() {
            let _ = (locks.stats(), locks.is_connected());
        }
    }
}

impl CounterFn for Reads {
    fn increment(&self, _: u64) {
        self.read();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Reads {
    fn increment(&self, _: f64) {
        self.read();
    }

    fn decrement(&self, _: f64) {
        self.read();
    }

    fn set(&self, _: f64) {
        self.read();
    }
}

impl HistogramFn for Reads {
    fn record(&self, _: f64) {
        self.read();
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.read();
    }
}

impl Recorder for Reads {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.read();
        Counter::from_arc(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.read();
        Gauge::from_arc(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.read();
        Histogram::from_arc(Arc::new(Self(Arc::clone(&self.0))))
    }
}

/// A recorder is the user's code, so the library must call it under no lock of its own. Otherwise this test deadlocks.
#[tokio::test(start_paused = true)]
async fn a_recorder_may_read_the_counts_of_the_manager_that_it_counts() {
    let locks = LockManager::in_memory();
    let known = Arc::new(OnceLock::from(locks.clone()));
    assert!(metrics::set_global_recorder(Reads(known)).is_ok());
    let modes: [fn(LockRequest) -> LockRequest; 3] = [|lock| lock, LockRequest::read, |lock| lock.permits(2)];
    for mode in modes {
        let request = || mode(locks.lock("p", &1));
        let (one, two) = (request().acquire().await, tokio::spawn(request().acquire()));
        tokio::task::yield_now().await;
        one.unwrap().release().await.unwrap();
        drop(two.await.unwrap().unwrap());
        locks.lock("p", &1).run(tokio::task::yield_now()).await.unwrap();
    }
    let lingers = || locks.lock("p", &2).linger(Duration::from_secs(1));
    for _ in 0..2 {
        lingers().acquire().await.unwrap().release().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lost = locks.lock("p", &3).max_hold(Duration::from_millis(100)).run(std::future::pending::<()>()).await;
    assert!(lost.unwrap_err().is_lost());
    locks.lock_all("p", [4, 5]).acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await;
}

/// The number after the `>` in this alert's rule.
fn threshold(alert: &str) -> f64 {
    let alerts = read("docs/telemetry/alerts.yaml");
    let (_, rule) = alerts.split_once(&format!("alert: {alert}\n")).expect("the alert");
    let rule = rule.split("- alert:").next().unwrap();
    let (_, number) = rule.split_once("> ").expect("a comparison");
    number.split_whitespace().next().unwrap().parse().unwrap()
}

/// The alert on the oldest hold finds one stuck key among many busy ones. No other alert does: no lock is lost, locks of the prefix are
/// granted all the time, and the histogram has only holds that have ended.
#[tokio::test(start_paused = true)]
async fn one_hung_key_among_two_hundred_busy_ones_is_found_by_its_age() {
    let recorder = PrometheusBuilder::new().set_buckets(&[0.1, 1.0, 10.0, 100.0]).unwrap().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    let locks = LockManager::in_memory();
    let oldest = |what: &str| value(&handle, &format!("cache_lock_oldest_{what}_seconds")).parse::<f64>().unwrap();
    let hung = locks.lock("p", &7).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("p", &7).timeout(Duration::from_hours(1)).acquire());
    let bound = threshold("CacheLockHung");
    let busy_for = Duration::from_secs_f64(bound + 10.0);
    let start = tokio::time::Instant::now();
    while start.elapsed() < busy_for {
        for key in 100..300 {
            locks.lock("p", &key).run(tokio::time::sleep(Duration::from_millis(1))).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let age = start.elapsed().as_secs_f64();
        for told in [oldest("hold"), oldest("wait")] {
            assert!(told <= age && told > age - 2.0, "{told} of {age}");
        }
    }
    assert!(oldest("hold") > bound && oldest("wait") > threshold("CacheLockWaitsLong"));
    assert_eq!(locks.stats().lost, 0, "another alert would fire");
    let ended: u64 = value(&handle, "cache_lock_hold_seconds_count").parse().unwrap();
    let short: u64 = value(&handle, r#"cache_lock_hold_seconds_bucket{prefix="p",le="0.1"}"#).parse().unwrap();
    assert!(ended == short && ended > 5000, "{short} of {ended}");
    drop(hung);
    waits.await.unwrap().unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((oldest("hold"), oldest("wait")), (0.0, 0.0), "no hold and no wait is left");
}

#[tokio::test(start_paused = true)]
async fn the_dashboard_the_alerts_and_the_page_name_what_the_exporter_renders() {
    let rendered = play().await.render();
    let samples = names(&rendered);
    let families: BTreeSet<_> = rendered.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let families: BTreeSet<_> = families.into_iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(families.len(), 15, "{families:?}");
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
