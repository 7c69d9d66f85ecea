//! [`Nemesis`]: the faults while the customers buy.

use examples::Server;
use shop::StartFailure;

use crate::customers::Customers;
use crate::instance::Instance;

/// Longer than the lease of a sale, so that the other instance gets the locks in the meantime.
#[cfg(unix)]
const PAUSE: std::time::Duration = std::time::Duration::from_secs(4);

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

    /// Restarts the server, pauses an instance and kills it, each when another quarter is sold. Then it keeps the rest running
    /// until the customers have gone. Returns what it did, as text.
    pub(crate) async fn strike(mut self, with_faults: bool) -> Result<String, StartFailure> {
        let mut done = Vec::new();
        if with_faults {
            let [_, second] = &mut self.instances;
            if let Some(server) = &mut self.server {
                self.customers.has_sold(0.25).await;
                done.push(format!("After {} sales Redis was restarted, without its data.", self.customers.sold()));
                server.restart_empty().await?;
            }
            #[cfg(unix)]
            {
                self.customers.has_sold(0.5).await;
                done.push(format!("After {} sales one instance was paused for {PAUSE:?}.", self.customers.sold()));
                second.pause(PAUSE).await?;
            }
            self.customers.has_sold(0.75).await;
            done.push(format!("After {} sales that instance was killed.", self.customers.sold()));
            second.kill().await?;
        }
        self.customers.have_gone().await;
        Ok(done.join("\n"))
    }
}
