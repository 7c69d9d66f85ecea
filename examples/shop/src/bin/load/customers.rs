//! [`Customers`]: they buy until everything is sold, and pay each order from two browsers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Client;
use serde::Deserialize;
use shop::Receipt;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest pause of a customer, whatever `Retry-After` says: these customers are in a hurry.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a customer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// After this time without a sale the customers give up: something is stuck.
const STUCK: Duration = Duration::from_secs(40);

const ITEMS: i64 = 4;

/// How often each answer was received, by the request, and by the status with its code.
pub(crate) type Answers = BTreeMap<String, u64>;

#[derive(Clone, Debug)]
pub(crate) struct Customers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    instances: Vec<String>,
    stock: i64,
    sold: watch::Sender<i64>,
    have_gone: watch::Sender<bool>,
    sold_out: Mutex<BTreeSet<i64>>,
    last_sale: Mutex<Instant>,
    receipts: Mutex<Vec<i64>>,
    answers: Mutex<Answers>,
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
}

impl Customers {
    pub(crate) fn new(instances: impl IntoIterator<Item = String>, stock: i64) -> Self {
        let shared = Shared {
            client: Client::new(),
            instances: instances.into_iter().collect(),
            stock,
            sold: watch::Sender::new(0),
            have_gone: watch::Sender::new(false),
            sold_out: Mutex::default(),
            last_sale: Mutex::new(Instant::now()),
            receipts: Mutex::default(),
            answers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How many sales the customers know of.
    pub(crate) fn sold(&self) -> i64 {
        *self.shared.sold.borrow()
    }

    /// The orders for which customers have a receipt.
    pub(crate) fn receipts(&self) -> Vec<i64> {
        self.shared.receipts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this part of the stock is sold, or the customers have gone.
    pub(crate) async fn has_sold(&self, part: f64) {
        #[expect(clippy::cast_precision_loss, reason = "a part of a few hundred items")]
        let is_sold = |sold: &i64| *sold as f64 >= part * self.shared.stock as f64;
        let mut sold = self.shared.sold.subscribe();
        tokio::select! {
            _ = sold.wait_for(is_sold) => {}
            () = self.have_gone() => {}
        }
    }

    pub(crate) async fn have_gone(&self) {
        let _ = self.shared.have_gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Buys until all items are sold out, and pays. Returns all answers.
    pub(crate) async fn buy_everything(&self, count: u32) -> Answers {
        join_all((0..count).map(|_| self.shared.clone().buy_until_sold_out())).await;
        self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Pays an order, whatever it takes. Returns `false` when it can't be paid.
    pub(crate) async fn pay(&self, order: i64) -> bool {
        self.shared.pay(order).await
    }

    /// Lets the instances end.
    pub(crate) fn leave(&self) {
        self.shared.have_gone.send_replace(true);
    }
}

impl Shared {
    async fn buy_until_sold_out(self: Arc<Self>) {
        while let Some(item) = self.choose() {
            let url = format!("{}/items/{item}/buy", self.any_instance());
            match self.post::<Receipt>("buy", &url).await {
                Ok(receipt) => {
                    self.receipts.lock().unwrap_or_else(PoisonError::into_inner).push(receipt.order);
                    *self.last_sale.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                    self.sold.send_modify(|sold| *sold += 1);
                    // Two browsers at once, perhaps with different instances: it is paid once anyway.
                    tokio::join!(self.pay(receipt.order), self.pay(receipt.order));
                }
                Err(code) if code == "sold_out" => {
                    self.sold_out.lock().unwrap_or_else(PoisonError::into_inner).insert(item);
                }
                Err(_) => tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await,
            }
        }
    }

    async fn pay(&self, order: i64) -> bool {
        let until = Instant::now() + STUCK;
        while Instant::now() < until {
            let url = format!("{}/orders/{order}/pay", self.any_instance());
            if self.post::<shop::Payment>("pay", &url).await.is_ok() {
                return true;
            }
            tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await;
        }
        false
    }

    /// An item that is not sold out; `None` when all are, or nothing was sold for a long time.
    fn choose(&self) -> Option<i64> {
        let is_stuck = self.last_sale.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > STUCK;
        let sold_out = self.sold_out.lock().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<i64> = (1..=ITEMS).filter(|item| !sold_out.contains(item)).collect();
        fastrand::choice(left).filter(|_| !is_stuck)
    }

    fn any_instance(&self) -> &str {
        fastrand::choice(&self.instances).map_or("", String::as_str)
    }

    /// The answer, or the code of the problem.
    async fn post<T: serde::de::DeserializeOwned>(&self, what: &str, url: &str) -> Result<T, String> {
        let answer = async {
            let answer = self.client.post(url).timeout(PATIENCE).send().await?;
            let status = answer.status();
            if status.is_success() {
                return Ok((status, Ok(answer.json().await?)));
            }
            Ok::<_, reqwest::Error>((status, Err(answer.json::<Refusal>().await?.code)))
        };
        let (seen, answer) = match answer.await {
            Ok((status, Ok(answer))) => (format!("{what}: {status}"), Ok(answer)),
            Ok((status, Err(code))) => (format!("{what}: {status} ({code})"), Err(code)),
            Err(_) => (format!("{what}: no answer"), Err(String::new())),
        };
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(seen).or_default() += 1;
        answer
    }
}
