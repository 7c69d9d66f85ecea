//! Two instances with one database and the same locks.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::testing::TestLocks;
use shop::{Database, Failure, Night, Payment, Settings, Shop};

async fn two_instances(test: &TestLocks) -> [Arc<Shop>; 2] {
    let settings = Settings { work: Duration::from_millis(20), is_locked: true, ..Settings::from_env().unwrap() };
    let database = Database::open(None, 5).await.unwrap();
    [test.manager(), test.other_process()].map(|locks| Arc::new(Shop::new(locks.clone(), database.clone(), &settings)))
}

#[tokio::test]
async fn an_item_is_sold_as_often_as_there_is_stock() {
    let test = TestLocks::new();
    let shops = two_instances(&test).await;
    let customers = (0..10).map(|number| {
        let shop = Arc::clone(&shops[number % 2]);
        tokio::spawn(async move { shop.buy(1).await })
    });
    let mut sold = 0;
    for customer in customers.collect::<Vec<_>>() {
        match customer.await.unwrap() {
            Ok(_) => sold += 1,
            Err(failure) => assert!(matches!(failure, Failure::SoldOut), "{failure}"),
        }
    }
    let books = shops[0].database.books().await.unwrap();
    assert_eq!((sold, books.sold, books.left), (5, 5, 3 * 5));
}

#[tokio::test]
async fn an_order_is_paid_once() {
    let test = TestLocks::new();
    let [north, south] = two_instances(&test).await;
    let order = north.buy(1).await.unwrap().order;
    let (first, second) = tokio::join!(north.pay(order), south.pay(order));
    let mut payments = [first.unwrap(), second.unwrap()];
    payments.sort_by_key(|payment| *payment != Payment::Made);
    assert_eq!(payments, [Payment::Made, Payment::MadeBefore]);
    assert_eq!(north.database.books().await.unwrap().paid_twice, 0);
}

#[tokio::test]
async fn a_night_has_one_report() {
    let test = TestLocks::new();
    let [north, south] = two_instances(&test).await;
    let (first, second) = tokio::join!(north.report(20_000), south.report(20_000));
    let made = [&first, &second].into_iter().filter(|night| matches!(night, Ok(Night::Made))).count();
    assert_eq!(made, 1, "{first:?} {second:?}");
    assert!([first, second].into_iter().all(|night| !matches!(night, Err(Failure::Database(_)))));
    for shop in [north, south] {
        assert_eq!(shop.report(20_000).await.unwrap(), Night::MadeBefore);
    }
}
