//! The live page, in a headless Chromium.

use std::time::Duration;

use chromiumoxide::browser::{Browser, BrowserConfig};
use chromiumoxide::page::{Page, ScreenshotParams};
use examples::Server;
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::instance::Instance;

/// A browser with a profile of its own; `None` if there is no Chromium.
fn settings(profile: &std::path::Path) -> Option<BrowserConfig> {
    let window = BrowserConfig::builder().user_data_dir(profile).window_size(1000, 640);
    // Chromium's sandbox refuses to run as root, as tests in containers do. The only page is the shop's own.
    match window.no_sandbox().build() {
        Ok(settings) => Some(settings),
        Err(reason) => {
            println!("skipped: no Chromium here ({reason})");
            None
        }
    }
}

async fn text(page: &Page, script: &str) -> String {
    page.evaluate(script).await.unwrap().into_value().unwrap_or_default()
}

/// Waits until the page shows what `is_shown` accepts.
async fn shows(page: &Page, script: &str, is_shown: impl Fn(&str) -> bool) {
    let shown = async {
        while !is_shown(&text(page, script).await) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let is_in_time = timeout(Duration::from_secs(20), shown).await.is_ok();
    assert!(is_in_time, "`{script}` stays `{}`", text(page, script).await);
}

/// `SHOP_SCREENSHOT=FILE` keeps a picture of the page, for the README.
#[tokio::test]
async fn the_page_shows_stock_holder_and_hand_overs_as_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let Some(settings) = settings(&folder.path().join("profile")) else { return };
    let server = Server::start().await.unwrap();
    let database = format!("sqlite://{}/shop.sqlite?mode=rwc", folder.path().display());
    let shared = [("REDIS_URL", server.url()), ("DATABASE_URL", &database), ("SHOP_WORK_MS", "40")];
    let (shop, other) = (Instance::start(&shared).await, Instance::start(&shared).await);
    let (mut browser, mut handler) = Browser::launch(settings).await.unwrap();
    let driver = tokio::spawn(async move { while handler.next().await.is_some() {} });
    let page = browser.new_page(shop.url.as_str()).await.unwrap();
    let cell = |number: u32| format!("document.querySelector('[data-item=\"1\"]')?.cells[{number}].textContent ?? ''");
    let number = |id: &str| format!("document.getElementById('{id}').textContent");
    shows(&page, &cell(1), |stock| stock == "100 of 100").await;

    // A customer clicks.
    page.find_element("[data-item=\"1\"] button").await.unwrap().click().await.unwrap();
    shows(&page, &number("answer"), |answer| answer.starts_with("Lamp: order ")).await;
    shows(&page, &cell(1), |stock| stock == "99 of 100").await;

    // A crowd arrives. Two items are wanted by both instances, and pass between them. Two are wanted by one instance only.
    let client = reqwest::Client::new();
    let buy = |(customer, item): (usize, u32)| {
        let shop = if item > 2 || customer % 2 == 0 { &shop } else { &other };
        let answer = client.post(format!("{}/items/{item}/buy", shop.url)).send();
        tokio::spawn(async move { (item, answer.await.unwrap().status()) })
    };
    let wanted = [30, 24, 40, 32].into_iter().zip(1..).flat_map(|(count, item)| vec![item; count]);
    let crowd: Vec<_> = wanted.enumerate().map(buy).collect();
    for shown in [cell(3), cell(4)] {
        shows(&page, &shown, |label| !label.is_empty()).await;
    }
    for shown in [number("waiting"), number("hand_overs"), number("hand_offs")] {
        shows(&page, &shown, |number| number.parse().is_ok_and(|number: u32| number > 0)).await;
    }
    shows(&page, &cell(1), |stock| {
        stock.split_once(' ').is_some_and(|(left, _)| left.parse().is_ok_and(|left: u32| left < 90))
    })
    .await;
    if let Ok(file) = std::env::var("SHOP_SCREENSHOT") {
        page.save_screenshot(ScreenshotParams::builder().build(), file).await.unwrap();
    }
    let mut left = 99;
    for customer in crowd {
        let (item, status) = customer.await.unwrap();
        // On a slow machine the wait of the last customers may be too long.
        assert!([201, 503].contains(&status.as_u16()), "{status}");
        left -= u32::from(item == 1 && status == 201);
    }
    shows(&page, &cell(1), |stock| stock == format!("{left} of 100")).await;

    // The service ends, and the page says so.
    shop.terminate();
    shows(&page, &number("state"), |state| state == "the service is away").await;
    assert!(shop.end().await.success());
    browser.close().await.unwrap();
    browser.wait().await.unwrap();
    driver.await.unwrap();
}
