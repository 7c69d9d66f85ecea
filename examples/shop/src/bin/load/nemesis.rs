//! [`Nemesis`]: what goes wrong while the customers buy.

use examples::Server;
use shop::StartFailure;

use crate::customers::Customers;
use crate::instance::Instance;

/// Two instances, and the server of their locks if it is the load's own.
#[derive(Debug)]
pub(crate) struct Nemesis {
    instances: [Instance; 2],
    server: Option<Server>,
    customers: Customers,
}

impl Nemesis {
    pub(crate) fn new(instances: [Instance; 2], server: Option<Server>, customers: Customers) -> Self {
        Self { instances, server, customers }
    }

    /// Kills an instance when a third is sold, and restarts the server when two thirds are sold. Then it keeps what is left
    /// running until the customers have gone. Returns what it did, as text.
    pub(crate) async fn strike(mut self, with_faults: bool) -> Result<String, StartFailure> {
        let mut done = Vec::new();
        if with_faults {
            self.customers.has_sold(1.0 / 3.0).await;
            let [_, second] = &mut self.instances;
            second.kill().await?;
            done.push(format!("After {} sales one instance was killed.", self.customers.sold()));
            if let Some(server) = &mut self.server {
                self.customers.has_sold(2.0 / 3.0).await;
                server.restart_empty().await?;
                done.push(format!("After {} sales Redis was restarted, without its data.", self.customers.sold()));
            }
        }
        self.customers.have_gone().await;
        Ok(done.join(" "))
    }
}
