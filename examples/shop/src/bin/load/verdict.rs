//! [`Verdict`]: whether the books are right, as a table.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::future::join_all;
use shop::{Books, Database, StartFailure};

use crate::customers::{Answers, Customers};

/// The state of the books when all customers have gone.
#[derive(Debug)]
pub(crate) struct Verdict {
    books: Books,
    /// Orders for which customers have a receipt, but which are not in the books.
    forgotten: i64,
    /// Orders that were open when the customers had gone, because their instance died or did not answer.
    open: i64,
    answers: Answers,
}

impl Verdict {
    /// Pays the open orders, lets the instances end, and reads the books.
    pub(crate) async fn of(database: &Database, customers: &Customers, answers: Answers) -> Result<Self, StartFailure> {
        let open = database.books().await?.unpaid;
        join_all(open.iter().map(|order| customers.pay(*order))).await;
        customers.leave();
        let books = database.books().await?;
        let known: BTreeSet<i64> = books.orders.iter().copied().collect();
        let forgotten = customers.receipts().iter().filter(|order| !known.contains(order)).count();
        Ok(Self { books, forgotten: i64::try_from(forgotten)?, open: i64::try_from(open.len())?, answers })
    }

    pub(crate) fn is_right(&self) -> bool {
        self.rows().iter().all(|(_, number, wanted)| number == wanted)
    }

    fn rows(&self) -> [(&'static str, i64, i64); 5] {
        let Books { at_start, left, sold, paid_twice, unpaid, .. } = &self.books;
        let unpaid = i64::try_from(unpaid.len()).unwrap_or(i64::MAX);
        [
            ("sold + left", sold + left, *at_start),
            ("left", *left, 0),
            ("orders paid twice", *paid_twice, 0),
            ("orders that can't be paid", unpaid, 0),
            ("receipts without an order", self.forgotten, 0),
        ]
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<32} {:>8} {:>8}", "", "found", "right")?;
        for (what, number, wanted) in self.rows() {
            let mark = if number == wanted { "" } else { "  VIOLATION" };
            writeln!(f, "{what:<32} {number:>8} {wanted:>8}{mark}")?;
        }
        writeln!(
            f,
            "\nSold: {}. Orders that were open when an instance had died, and were paid then: {}.",
            self.books.sold, self.open
        )?;
        writeln!(f, "\nAnswers:")?;
        self.answers.iter().try_for_each(|(answer, count)| writeln!(f, "{count:>8}  {answer}"))
    }
}
