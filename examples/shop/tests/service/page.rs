//! The live page, in a headless Chromium.

use std::time::Duration;

use chromiumoxide::browser::{Browser, BrowserConfig};
use chromiumoxide::page::{Page, ScreenshotParams};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::instance::Instance;

/// A browser with a profile of its own; `None` where there is no Chromium.
fn settings(profile: &std::path::Path) -> Option<BrowserConfig> {
    let window = BrowserConfig::builder().user_data_dir(profile).window_size(1000, 640);
    // The sandbox of Chromium refuses to run as root, as tests in containers do. The only page is the shop's own.
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

/// Waits until the page shows what `is_shown` looks for.
async fn shows(page: &Page, script: &str, is_shown: impl Fn(&str) -> bool) {
    let shown = async {
        while !is_shown(&text(page, script).await) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(Duration::from_secs(20), shown).await.is_err() {
        panic!("`{script}` stays `{}`", text(page, script).await);
    }
}

/// `SHOP_SCREENSHOT=FILE` keeps a picture of the page, for the README.
#[tokio::test]
async fn the_page_shows_stock_holder_and_hand_overs_as_they_change() {
    let profile = tempfile::tempdir().unwrap();
    let Some(settings) = settings(profile.path()) else { return };
    let shop = Instance::start(&[("SHOP_WORK_MS", "40")]).await;
    let (mut browser, mut handler) = Browser::launch(settings).await.unwrap();
    let driver = tokio::spawn(async move { while handler.next().await.is_some() {} });
    let page = browser.new_page(shop.url.as_str()).await.unwrap();
    let cell = |number: u32| format!("document.querySelector('[data-item=\"1\"]')?.cells[{number}].textContent ?? ''");
    shows(&page, &cell(1), |stock| stock == "100 of 100").await;

    // A customer clicks.
    page.find_element("[data-item=\"1\"] button").await.unwrap().click().await.unwrap();
    shows(&page, "document.getElementById('answer').textContent", |answer| answer.starts_with("Lamp: order ")).await;
    shows(&page, &cell(1), |stock| stock == "99 of 100").await;

    // A crowd comes.
    let client = reqwest::Client::new();
    let buy = |item: u32| tokio::spawn(client.post(format!("{}/items/{item}/buy", shop.url)).send());
    let crowd: Vec<_> = [60, 40, 25, 10].into_iter().zip(1..).flat_map(|(count, item)| vec![item; count]).map(buy).collect();
    shows(&page, &cell(3), |holder| !holder.is_empty()).await;
    shows(&page, "document.getElementById('hand_overs').textContent", |rate| rate.parse().is_ok_and(|rate: u32| rate > 0)).await;
    if let Ok(file) = std::env::var("SHOP_SCREENSHOT") {
        page.save_screenshot(ScreenshotParams::builder().build(), file).await.unwrap();
    }
    for customer in crowd {
        assert_eq!(customer.await.unwrap().unwrap().status(), 201);
    }
    shows(&page, &cell(1), |stock| stock == "39 of 100").await;

    // The service ends, and the page says so.
    shop.terminate();
    shows(&page, "document.getElementById('state').textContent", |state| state == "the service is away").await;
    assert!(shop.end().await.success());
    browser.close().await.unwrap();
    browser.wait().await.unwrap();
    driver.await.unwrap();
}
