//! [`Sentinels`]: the servers that know which server is the master.
//!
//! The `redis` crate's `Sentinel` asks a master for its role on one connection and uses another one. It waits for the first sentinel of its
//! list before it reads what the second one said, with time limits of its own. And its connections end with the runtime that made them.

use std::collections::HashSet;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, Pipeline};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::Moment;
use crate::failure::CallError;
use crate::greeting::{Greeted, OnFailover, greet};
use crate::mutex::Mutex;
use crate::wire::{Hear, Peer, Trust};
use listener::{Choice, Listener, Said};

mod listener;

/// How long an older choice of the sentinels is rejected. After that the newer choice may no longer count, because the sentinels were set
/// up again.
const MEMORY: Duration = Duration::from_secs(10);

/// The sentinels of one master.
#[derive(Clone, Debug)]
pub struct Sentinels {
    /// The address of each sentinel, with the credentials for the master.
    addresses: Vec<Peer>,
    /// The master's name in the sentinels' configuration.
    name: Arc<str>,
    /// The number of the latest failover that any sentinel reported on any connection, and when.
    latest: Arc<Mutex<Option<(u64, Moment)>>>,
    /// The last master that any connection led to.
    known: Arc<Mutex<Option<Peer>>>,
}

impl Sentinels {
    /// The sentinels at these addresses, with the credentials and the database of the servers; `name` is the master's.
    pub(crate) fn new(addresses: Vec<ConnectionInfo>, name: &str, trust: &Trust) -> Self {
        let addresses = addresses.into_iter().map(|address| Peer::new(address, trust.clone())).collect();
        Self { addresses, name: name.into(), latest: Arc::default(), known: Arc::default() }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.addresses.iter().any(Peer::is_tls)
    }

    /// Connects to the master: the first server that a sentinel names, and whose role is master.
    ///
    /// All sentinels are asked at the same time. A sentinel that was cut off, or does not know of a failover yet, names a server that is
    /// gone or is a replica now; or that server still believes that it is the master, for some ten seconds after a failover. So this keeps
    /// listening to all sentinels while the connection is in use, and calls `on_failover` when any of them reports a later choice. A silent
    /// sentinel is no reason to leave a master that answers.
    ///
    /// When a second server is named, it is tried at the same time as the first: a server that is stopped or far away must not use up the
    /// time of the others. The last known master is tried at once: usually it is named again, which saves three round trips of six. It is
    /// used only when a sentinel has named it.
    pub(crate) async fn connect(
        &self,
        hear: impl Hear + Clone,
        commands: &Pipeline,
        limit: Duration,
        on_failover: &OnFailover,
    ) -> Result<Greeted, CallError> {
        let (mut listening, mut said) = self.listen(limit);
        let mut unheard: HashSet<usize> = (0..self.addresses.len()).collect();
        let (mut trying, mut search) = (FuturesUnordered::new(), Search::default());
        let start = |master: Peer| {
            let connecting = connect_to(master.clone(), hear.clone(), commands, limit);
            async move { (master, connecting.await) }
        };
        if let Some(master) = self.known().clone() {
            search.tried.push(master.addr().clone());
            trying.push(start(master));
        }
        while !unheard.is_empty() || !trying.is_empty() {
            match first(&mut trying, &mut said, !unheard.is_empty()).await {
                Either::Left((master, outcome)) => search.on_outcome(&master, outcome),
                Either::Right(None) => break,
                Either::Right(Some(Said { number, choice })) => {
                    unheard.remove(&number);
                    match choice {
                        Ok(choice) if !self.is_latest(&choice) => search.of_master = Some(outdone_error(&choice)),
                        Ok(choice) => {
                            if search.on_choice(&choice) {
                                trying.push(start(choice.master));
                            }
                        }
                        Err(error) => search.of_sentinels = Some(error),
                    }
                }
            }
            while let Some((choice, greeted)) = search.take_master() {
                if self.is_latest(&choice) {
                    *self.known() = Some(choice.master.clone());
                    listening.spawn(self.clone().watch_for_failover(choice, said, Arc::clone(on_failover)));
                    return Ok(Greeted { listening: Some(listening), ..greeted });
                }
                search.of_master = Some(outdone_error(&choice));
            }
        }
        Err(search.into_error())
    }

    /// Listens to all sentinels, each in its own task, so that this goes on while a server that is tried does not answer. The tasks end
    /// with the returned set.
    fn listen(&self, limit: Duration) -> (JoinSet<()>, UnboundedReceiver<Said>) {
        let (sender, said) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        for (number, sentinel) in self.addresses.iter().cloned().enumerate() {
            let (name, said) = (Arc::clone(&self.name), sender.clone());
            listening.spawn(Listener { number, sentinel, name, limit, said }.run());
        }
        // Only the tasks have senders: when the runtime ends, the tasks end, and the receiver notices.
        (listening, said)
    }

    fn known(&self) -> MutexGuard<'_, Option<Peer>> {
        // Nothing under this lock can panic.
        self.known.lock()
    }

    /// Whether no sentinel has reported a later choice.
    fn is_latest(&self, choice: &Choice) -> bool {
        // Nothing under this lock can panic.
        let mut latest = self.latest.lock();
        if latest.is_some_and(|(epoch, told)| choice.epoch < epoch && told.elapsed() < MEMORY) {
            return false;
        }
        *latest = Some((choice.epoch, Moment::now()));
        true
    }

    /// Calls `on_failover` when a sentinel reports that the chosen master was replaced.
    async fn watch_for_failover(self, chosen: Choice, mut said: UnboundedReceiver<Said>, on_failover: OnFailover) {
        while let Some(Said { choice, .. }) = said.recv().await {
            if choice.is_ok_and(|choice| self.is_latest(&choice) && choice.replaces(&chosen)) {
                return on_failover();
            }
        }
    }
}

fn place(master: &Peer) -> String {
    format!("the master {}", master.addr())
}

/// The error for the choice of a sentinel that does not know the latest choice.
fn outdone_error(choice: &Choice) -> CallError {
    let text = "another one was chosen in its place, as another sentinel has told".to_owned();
    CallError::Unsuitable(text).of(&place(&choice.master))
}

/// Connects to a server that has to be a master: a replica would refuse every write.
async fn connect_to(master: Peer, hear: impl Hear, commands: &Pipeline, limit: Duration) -> Result<Greeted, CallError> {
    let place = place(&master);
    let connecting = async {
        let greeted = greet(&master, hear, commands).await?;
        match greeted.hello_field("role") {
            Some(role) if role != "master" => {
                Err(CallError::Unsuitable(format!("it is a {role} now: a failover may be under way")))
            }
            _ => Ok(greeted),
        }
    };
    let outcome = timeout(limit, connecting).await.unwrap_or(Err(CallError::NoConnection(limit)));
    outcome.map_err(|error| error.of(&place))
}

/// Whichever is first: the outcome of a server that is tried, or a sentinel's answer. Sentinels count only while some `are_unheard`.
async fn first<T>(
    trying: &mut FuturesUnordered<impl Future<Output = T>>,
    said: &mut UnboundedReceiver<Said>,
    are_unheard: bool,
) -> Either<T, Option<Said>> {
    let tried = pin!(async {
        match trying.next().await {
            Some(outcome) => outcome,
            None => pending().await,
        }
    });
    let heard = pin!(async { if are_unheard { said.recv().await } else { pending().await } });
    match select(tried, heard).await {
        Either::Left((outcome, _)) => Either::Left(outcome),
        Either::Right((news, _)) => Either::Right(news),
    }
}

/// The search for a master, while sentinels are asked and servers are tried.
#[derive(Default)]
struct Search {
    /// Every server that was or is being tried.
    tried: Vec<ConnectionAddr>,
    named: Vec<Choice>,
    greeted: Vec<(ConnectionAddr, Greeted)>,
    failed: Vec<(ConnectionAddr, CallError)>,
    /// Why there is no master. The error of a named server explains more than that of a sentinel that is down.
    of_master: Option<CallError>,
    of_sentinels: Option<CallError>,
}

impl Search {
    fn on_outcome(&mut self, master: &Peer, outcome: Result<Greeted, CallError>) {
        match outcome {
            Ok(greeted) => self.greeted.push((master.addr().clone(), greeted)),
            Err(error) => self.failed.push((master.addr().clone(), error)),
        }
    }

    /// Handles a sentinel's choice. Returns whether the server still has to be tried.
    fn on_choice(&mut self, choice: &Choice) -> bool {
        self.named.push(choice.clone());
        let is_new = !self.tried.contains(choice.master.addr());
        if is_new {
            self.tried.push(choice.master.addr().clone());
        }
        is_new
    }

    /// A server that a sentinel named, and whose role is master.
    fn take_master(&mut self) -> Option<(Choice, Greeted)> {
        let is_named = |addr: &ConnectionAddr| self.named.iter().rposition(|choice| choice.master.addr() == addr);
        let (place, named) =
            self.greeted.iter().enumerate().find_map(|(place, (addr, _))| Some((place, is_named(addr)?)))?;
        Some((self.named.get(named)?.clone(), self.greeted.swap_remove(place).1))
    }

    /// Why there is no master. The failure of a server that no sentinel names does not matter.
    fn into_error(self) -> CallError {
        let is_named = |addr: &ConnectionAddr| self.named.iter().any(|choice| choice.master.addr() == addr);
        let of_named = self.failed.into_iter().rfind(|(addr, _)| is_named(addr)).map(|(_, error)| error);
        let nobody = || CallError::Unsuitable("no sentinel could be asked".to_owned());
        of_named.or(self.of_master).or(self.of_sentinels).unwrap_or_else(nobody)
    }
}

/// For messages, without credentials.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        write!(f, "`{}` by the sentinels {}", self.name, addresses.join(", "))
    }
}
