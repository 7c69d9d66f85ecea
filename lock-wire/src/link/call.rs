//! [`Outgoing`]: a command. [`Called`]: a reply. And how a [`Link`] sends the one and waits for the other.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use super::again::Again;
use super::{Channel, Command, Link, Live, Made};
use crate::clock::{Deadline, Moment};
use crate::failure::CallError;
use crate::hash_slot::{NodeId, slot_of};
use crate::wire::{NoReply, Patience, Sender};

/// While a server is loading, lacks replicas, or refuses writes, look for another master at most this often.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// A command to send on a connection.
#[derive(Clone, Debug)]
pub struct Outgoing<C = Cmd> {
    command: C,
    arms: bool,
    is_beginning: bool,
    listens: Option<u16>,
}

impl<C: From<Cmd>> From<Cmd> for Outgoing<C> {
    fn from(command: Cmd) -> Self {
        Self::of(command.into())
    }
}

impl<C> Outgoing<C> {
    /// This command without options.
    #[inline]
    pub fn of(command: C) -> Self {
        Self { command, arms: false, is_beginning: false, listens: None }
    }

    /// For a command that begins something: it is not sent while the connection is full.
    #[inline]
    pub fn beginning(self) -> Self {
        Self { is_beginning: true, ..self }
    }

    /// Whether the server is to report when another client changes what the command reads.
    #[inline]
    pub fn arming(self, arms: bool) -> Self {
        Self { arms, ..self }
    }

    /// The command may cause pushes for `key`. In a cluster, the connection first subscribes to the channel of the key's slot.
    #[inline]
    pub fn listening(self, key: Option<&str>) -> Self {
        Self { listens: key.map(slot_of), ..self }
    }

    /// The command to send first, in the same write.
    #[inline]
    fn first(&self, live: &Live, channel: Option<&Channel>) -> Option<Cmd> {
        if self.arms && live.has_alarms {
            return Some(arming());
        }
        let channel = channel.filter(|channel| channel.is_of_callers)?;
        live.shard.as_ref()?.subscription(self.listens?, channel)
    }

    /// Handles the answer to the first command. Its refusal does not fail the command behind it.
    #[inline]
    fn on_first(&self, live: &Live, answer: &Value) {
        if let (Some(slot), Some(shard)) = (self.listens, &live.shard) {
            shard.on_subscribed(slot, answer);
        }
    }
}

/// Has the server report when another client changes what the next command reads.
pub(super) fn arming() -> Cmd {
    redis::cmd("CLIENT").arg("CACHING").arg("YES").clone()
}

/// A reply.
pub struct Called {
    /// The reply itself.
    pub value: Value,
    /// The instant before the command was sent.
    pub sent: Moment,
    /// The command was sent before, and may have taken effect then.
    pub repeated: bool,
    /// The connection on which the reply arrived.
    pub live: Arc<Live>,
    /// The link that has, or had, this connection.
    pub link: Arc<Link>,
}

impl Called {
    /// Takes the reply out of this value.
    #[inline]
    pub fn take_value(&mut self) -> Value {
        std::mem::replace(&mut self.value, Value::Nil)
    }

    /// What was [kept](crate::Known::kept) about the server that replied.
    pub fn known<T: Any>(&self) -> Option<&T> {
        self.live.kept.as_ref()?.downcast_ref()
    }

    /// Drops the connection: this reply belongs to another command, so its replies are out of step.
    pub fn distrust(&self) {
        self.link.drop_connection(self.live.made.generation);
    }
}

impl Live {
    /// The node of a cluster that the connection leads to.
    #[inline]
    pub fn node(&self) -> Option<NodeId> {
        self.shard.as_ref().map(|shard| shard.node)
    }

    /// The number of this connection among those of its link.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.made.generation
    }
}

impl Link {
    /// Sends a command and waits for its reply, until the deadline or the command timeout. The command is made anew for each connection,
    /// and sent again as `again.rs` says.
    ///
    /// The future takes several hundred bytes: box what waits for long around it.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    pub fn call<'a, C: Command + 'a>(
        self: &'a Arc<Self>,
        command: impl Fn(&Self) -> Outgoing<C> + Send + Sync + 'a,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Called, CallError>> + Send + 'a {
        async move {
            let outcome = self.send(&command(self), deadline).await;
            if self.is_sent_again(&outcome, deadline.start()) {
                // Boxed, because it is rare, as in `send`.
                return Box::pin(self.send_again(&command, outcome, deadline)).await;
            }
            outcome
        }
    }

    async fn send_again<C: Command>(
        self: &Arc<Self>,
        command: &(dyn Fn(&Self) -> Outgoing<C> + Send + Sync),
        mut outcome: Result<Called, CallError>,
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        let (mut again, mut sent) = (Again::new(deadline, self.common.command_timeout), deadline.start());
        while self.is_sent_again(&outcome, sent) {
            if let Err(error) = &outcome {
                again.note(error);
            }
            if !again.pause().await {
                break;
            }
            sent = Moment::now();
            outcome = match self.ready(deadline.counted_from(sent)).await {
                Ok(deadline) => {
                    sent = deadline.start();
                    self.send(&command(self), deadline).await
                }
                Err(error) => Err(error),
            };
        }
        again.conclude(outcome)
    }

    /// Sends a command once.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    pub(crate) fn send<'a, C: Command>(
        self: &'a Arc<Self>,
        command: &'a Outgoing<C>,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Called, CallError>> + Send + 'a {
        async move {
            let (live, deadline) = self.live(deadline).await?;
            check_time(deadline)?;
            let value = if let Some(first) = command.first(&live, self.channel.as_ref()) {
                // Boxed, because it is rare: otherwise every command's future would have room for it.
                Box::pin(self.send_behind_first(&live, first, command, deadline)).await?
            } else {
                let sent = command.command.send(self, self.sender_of(command, &live, deadline));
                self.await_reply(live.made, deadline, sent).await?
            };
            // What the reply grants counts from the instant before the command was sent, never from a later one.
            let sent = if mutant!(DeadlineFromReply) { Moment::now() } else { deadline.start() };
            Ok(Called { value, sent, repeated: false, live, link: Arc::clone(self) })
        }
    }

    /// Sends a command behind another one that tells the server how to handle it.
    async fn send_behind_first<C: Command>(
        &self,
        live: &Live,
        first: Cmd,
        command: &Outgoing<C>,
        deadline: Deadline,
    ) -> Result<Value, CallError> {
        self.note_commands(1);
        let reply = async {
            let sender = self.sender_of(command, live, deadline);
            let [answer, reply] = sender.send_pair(&first, |output| command.command.write(output)).await?;
            command.on_first(live, &answer);
            Ok(reply)
        };
        self.await_reply(live.made, deadline, reply).await
    }

    /// Sends a command to the next master of a migrating slot. After `ASKING` that server already executes it.
    pub(crate) fn call_asking<'a, C: Command + 'a>(
        self: &'a Arc<Self>,
        command: Outgoing<C>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Called, CallError>> {
        Box::pin(async move {
            let (live, deadline) = self.live(deadline).await?;
            check_time(deadline)?;
            self.note_commands(1);
            let value = {
                let asking = redis::cmd("ASKING");
                let sender = self.sender(&live, deadline);
                let replies = sender.send_pair(&asking, |output| command.command.write(output));
                // A server that refuses `ASKING` only redirects the command, so the refusal of `ASKING` explains more.
                let told =
                    |[asked, answer]: [Value; 2]| if matches!(asked, Value::ServerError(_)) { asked } else { answer };
                let reply = async { replies.await.map(told) };
                self.await_reply(live.made, deadline, reply).await?
            };
            Ok(Called { value, sent: deadline.start(), repeated: false, live, link: Arc::clone(self) })
        })
    }

    /// Sends commands on the connection of an earlier answer. A connection that breaks is not replaced.
    pub async fn call_on(&self, live: &Live, commands: &Pipeline, deadline: Deadline) -> Result<Vec<Value>, CallError> {
        self.note_commands(commands.len());
        let replies = async { self.sender(live, deadline).send_all(commands).await.map(Value::Array) };
        match self.await_reply(live.made, deadline, replies).await? {
            Value::Array(values) => Ok(values),
            value => Ok(vec![value]),
        }
    }

    /// The time limit for a command with this deadline.
    #[inline]
    fn limit(&self, deadline: Deadline) -> Duration {
        mutant!(EndlessCommand => return Duration::from_secs(3600));
        deadline.span().min(self.common.command_timeout)
    }

    /// A sender of commands with this deadline. A server that answers nothing for the command timeout is silent.
    #[inline]
    fn sender<'a>(&self, live: &'a Live, deadline: Deadline) -> Sender<'a> {
        let silence = self.limit(deadline);
        let (silent_at, end) = (Deadline::new(deadline.start(), silence).on_timer(), deadline.on_timer());
        live.wire.until(Some(Patience { silent_at, silence, end }))
    }

    /// A sender for this command. A task that begins something may have to wait until the connection has room, unless other servers are
    /// asked the same: their answers would grow old meanwhile.
    fn sender_of<'a, C>(&self, command: &Outgoing<C>, live: &'a Live, deadline: Deadline) -> Sender<'a> {
        self.sender(live, deadline)
            .beginning(command.is_beginning && self.is_of_callers() && !self.purpose.has_others())
    }

    /// How long an answer now takes to reach its task because many are in flight. Zero while few are.
    pub fn lag(&self) -> Duration {
        let live = self.state.lock().live.clone();
        live.map_or(Duration::ZERO, |live| live.wire.lag())
    }

    /// Resolves when something may be begun, or there is no connection.
    pub async fn room(&self) {
        let live = self.state.lock().live.clone();
        if let Some(live) = live {
            live.wire.room().await;
        }
    }

    /// Waits for a reply. The reply, or its absence, decides whether the connection is still good.
    ///
    /// Not an `async fn`, like everything around each command's reply: it would store its arguments twice.
    fn await_reply(
        &self,
        made: Made,
        deadline: Deadline,
        reply: impl Future<Output = Result<Value, NoReply>> + Send,
    ) -> impl Future<Output = Result<Value, CallError>> + Send {
        self.in_time(made.generation, deadline, reply).map(move |reply| {
            let reply = reply?.and_then(Value::extract_error);
            self.conclude(made, reply.as_ref().map(|reply| self.purpose.refusal(reply)));
            Ok(reply?)
        })
    }

    /// Waits for an answer. The connection's [`Watch`](crate::wire::Watch) ends an overdue wait.
    fn in_time(
        &self,
        generation: u64,
        deadline: Deadline,
        answer: impl Future<Output = Result<Value, NoReply>> + Send,
    ) -> impl Future<Output = Result<RedisResult<Value>, CallError>> + Send {
        let (sent, limit) = (deadline.start(), self.limit(deadline));
        answer.map(move |answer| {
            match answer {
                Err(NoReply::Overdue { is_silent }) => {
                    // Get the reason from the connection before `on_silence` may drop it.
                    let unanswered = self.unanswered(limit);
                    if is_silent || mutant!(OthersUnheard) {
                        self.on_silence(generation, sent, limit);
                    }
                    return Err(unanswered);
                }
                Err(NoReply::NoRoom) => return Err(CallError::NoRoom.before_sending()),
                Ok(_) | Err(NoReply::Ended(_)) => {}
            }
            self.on_reply();
            self.note_nearer(sent);
            Ok(answer.map_err(RedisError::from))
        })
    }

    /// Decides whether the connection is still good, by the code of the first error among the answers, or by the connection's failure.
    #[inline]
    fn conclude(&self, made: Made, outcome: Result<Option<&str>, &RedisError>) {
        let code = match outcome {
            Ok(code) => code,
            Err(error) if error.is_io_error() => return self.drop_connection(made.generation),
            Err(error) => error.code(),
        };
        if let Some(code) = code.filter(|code| self.is_reason_to_look_elsewhere(made, code)) {
            self.common.events.on_former_master(self, code);
            self.leave_connection(made.generation);
        }
    }

    /// The error for a command that was not answered within this time.
    #[inline]
    pub fn unanswered(&self, limit: Duration) -> CallError {
        self.purpose.unanswered(self, limit)
    }

    /// Whether a refusal with this code is a reason to look for the master elsewhere.
    fn is_reason_to_look_elsewhere(&self, made: Made, code: &str) -> bool {
        match code {
            "READONLY" | "MASTERDOWN" => {
                self.endpoint.moves() || (self.endpoint.is_address() && made.at.elapsed() >= LOOK_PAUSE)
            }
            // It is usually still the master, and has just started or lost its replicas.
            "LOADING" | "NOREPLICAS" => self.endpoint.moves() && made.at.elapsed() >= LOOK_PAUSE,
            _ => false,
        }
    }

    /// Checks whether the server still answers; connects if there is no connection.
    pub async fn heartbeat(self: &Arc<Self>, deadline: Deadline) {
        // An error reply is an answer, too. `await_reply` has handled a silence.
        let _ = self.call(|_| Outgoing::of(redis::cmd("PING")), deadline).await;
    }

    /// Sends a command behind all earlier ones, without waiting. It is not sent when there is no connection, or too many commands are in
    /// flight. If the connection ends before the command is answered, `on_lost` is called.
    pub fn send_unread(&self, command: &Cmd, on_lost: impl FnOnce() + Send + 'static) {
        if self.origin.is_inherited() {
            return;
        }
        let live = self.state.lock().live.clone();
        if let Some(live) = live {
            self.note_commands(1);
            live.wire.send_unread(command, on_lost);
        }
    }
}

/// Refuses a command whose time is over. A task may be polled late: it waited for the connection, for another master, or for the answer
/// that the server does not know the script. What it sends now might arrive after its own withdrawal, which went out on another connection.
fn check_time(deadline: Deadline) -> Result<(), CallError> {
    mutant!(SentTooLate => return Ok(()));
    // A caller that waited has counted the deadline again, so no clock is read here.
    if deadline.span().is_zero() { Err(CallError::NoConnection(Duration::ZERO).before_sending()) } else { Ok(()) }
}
