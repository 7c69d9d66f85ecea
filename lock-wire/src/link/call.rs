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

/// While a server is loading, lacks replicas, or is none that may be written to, another master is looked for at most this often.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// A command, as it goes out on a connection.
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
    /// The command, as it is.
    #[inline]
    pub fn of(command: C) -> Self {
        Self { command, arms: false, is_beginning: false, listens: None }
    }

    /// For what begins something: it is not sent while there is no room.
    #[inline]
    pub fn beginning(self) -> Self {
        Self { is_beginning: true, ..self }
    }

    /// Whether the server is to tell when another client changes what the command reads.
    #[inline]
    pub fn arming(self, arms: bool) -> Self {
        Self { arms, ..self }
    }

    /// The command may have something pushed for `key`. In a cluster the connection hears the channel of the key's slot by then.
    #[inline]
    pub fn listening(self, key: Option<&str>) -> Self {
        Self { listens: key.map(slot_of), ..self }
    }

    /// The command that goes in front, in the same piece.
    #[inline]
    fn first(&self, live: &Live, channel: Option<&Channel>) -> Option<Cmd> {
        if self.arms && live.has_alarms {
            return Some(arming());
        }
        let channel = channel.filter(|channel| channel.is_of_callers)?;
        live.shard.as_ref()?.subscription(self.listens?, channel)
    }

    /// Takes in the answer to the command in front. Its refusal is no failure of the command behind it.
    #[inline]
    fn on_first(&self, live: &Live, answer: &Value) {
        if let (Some(slot), Some(shard)) = (self.listens, &live.shard) {
            shard.on_subscribed(slot, answer);
        }
    }
}

/// Has the server tell when somebody else changes what the next command reads.
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
    /// The connection on which the reply came.
    pub live: Arc<Live>,
    /// The link that has, or had, this connection.
    pub link: Arc<Link>,
}

impl Called {
    /// The reply, of which nothing is left here.
    #[inline]
    pub fn take_value(&mut self) -> Value {
        std::mem::replace(&mut self.value, Value::Nil)
    }

    /// What was [kept](crate::Known::kept) of the server that replied.
    pub fn known<T: Any>(&self) -> Option<&T> {
        self.live.kept.as_ref()?.downcast_ref()
    }

    /// This was the reply to another command: on its connection, replies are out of step.
    pub fn distrust(&self) {
        self.link.drop_connection(self.live.made.generation);
    }
}

impl Live {
    /// The node of a cluster at the other end.
    #[inline]
    pub fn node(&self) -> Option<NodeId> {
        self.shard.as_ref().map(|shard| shard.node)
    }

    /// Which of the connections of its link it is.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.made.generation
    }
}

impl Link {
    /// Sends a command and waits for its reply, until the deadline or the command timeout. The command is made for each connection on
    /// which it is sent, and sent again as `again.rs` says.
    ///
    /// Boxed: the client's future has more than a kilobyte, for which every task that waits for a lock would reserve room.
    pub fn call<'a, C: Command + 'a>(
        self: &'a Arc<Self>,
        command: impl Fn(&Self) -> Outgoing<C> + Send + Sync + 'a,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Called, CallError>> {
        Box::pin(async move {
            let outcome = self.send(&command(self), deadline).await;
            if self.is_sent_again(&outcome, deadline.start()) {
                // Boxed, because it is rare, as in `send`.
                return Box::pin(self.send_again(&command, outcome, deadline)).await;
            }
            outcome
        })
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
    pub(crate) async fn send<C: Command>(
        self: &Arc<Self>,
        command: &Outgoing<C>,
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        let (live, deadline) = self.live(deadline).await?;
        check_time(deadline)?;
        let value = if let Some(first) = command.first(&live, self.channel.as_ref()) {
            // Boxed, because it is rare: every command's future would have room for it.
            Box::pin(self.send_behind_first(&live, first, command, deadline)).await?
        } else {
            self.await_reply(live.made, deadline, command.command.send(self, self.sender_of(command, &live, deadline)))
                .await?
        };
        // Of what the reply grants: never later than the instant before the command was sent.
        let sent = if mutant!(DeadlineFromReply) { Moment::now() } else { deadline.start() };
        Ok(Called { value, sent, repeated: false, live, link: Arc::clone(self) })
    }

    /// Sends a command behind another that says how the server is to take it.
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

    /// Sends a command to the next master of a slot that is on its way. With `ASKING` that server executes the command already.
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
                // A server that refuses `ASKING` only redirects the command: the refusal of `ASKING` says more.
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

    /// How long a command with this deadline may take.
    #[inline]
    fn limit(&self, deadline: Deadline) -> Duration {
        mutant!(EndlessCommand => return Duration::from_secs(3600));
        deadline.span().min(self.common.command_timeout)
    }

    /// Sends commands that have to be answered by this deadline. A server that answers nothing for the command timeout is silent.
    #[inline]
    fn sender<'a>(&self, live: &'a Live, deadline: Deadline) -> Sender<'a> {
        let silence = self.limit(deadline);
        let (silent_at, end) = (Deadline::new(deadline.start(), silence).on_timer(), deadline.on_timer());
        live.wire.until(Some(Patience { silent_at, silence, end }))
    }

    /// Sends this command. A task that begins something may have to wait for room, unless other servers are asked the same: what these answer
    /// would become old meanwhile.
    fn sender_of<'a, C>(&self, command: &Outgoing<C>, live: &'a Live, deadline: Deadline) -> Sender<'a> {
        self.sender(live, deadline)
            .beginning(command.is_beginning && self.is_of_callers() && !self.purpose.has_others())
    }

    /// How long an answer takes now until its task has it, because many are on their way. Zero while few are.
    pub fn lag(&self) -> Duration {
        let live = self.state.lock().live.clone();
        live.map_or(Duration::ZERO, |live| live.wire.lag())
    }

    /// Resolves when there is room for what begins something, or no connection.
    pub async fn room(&self) {
        let live = self.state.lock().live.clone();
        if let Some(live) = live {
            live.wire.room().await;
        }
    }

    /// Waits for a reply, and decides by the reply, or by its absence, whether the connection is still good.
    ///
    /// Not an `async fn`, as everything around the reply of each command: that would have room for its arguments twice.
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

    /// Waits for what a connection answers. That it comes in time is seen to by the connection's [`Watch`](crate::wire::Watch).
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
                    if is_silent || mutant!(OthersUnheard) {
                        self.on_silence(generation, sent, limit);
                    }
                    return Err(self.unanswered(limit));
                }
                Err(NoReply::NoRoom) => return Err(CallError::NoRoom.before_sending()),
                Ok(_) | Err(NoReply::Ended(_)) => {}
            }
            self.on_reply();
            self.note_nearer(sent);
            Ok(answer.map_err(RedisError::from))
        })
    }

    /// Decides by the code of the first error among the answers, or by the failure of the connection, whether the connection
    /// is still good.
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

    /// Why there was no answer within a time.
    #[inline]
    pub fn unanswered(&self, limit: Duration) -> CallError {
        self.purpose.unanswered(limit)
    }

    /// Whether a refusal with this code is a reason to look where the keys live now.
    fn is_reason_to_look_elsewhere(&self, made: Made, code: &str) -> bool {
        match code {
            "READONLY" | "MASTERDOWN" => {
                self.endpoint.moves() || (self.endpoint.is_address() && made.at.elapsed() >= LOOK_PAUSE)
            }
            // Most often it is still the master, and has only started, or lost its replicas.
            "LOADING" | "NOREPLICAS" => self.endpoint.moves() && made.at.elapsed() >= LOOK_PAUSE,
            _ => false,
        }
    }

    /// Finds out whether the server still answers; connects when there is no connection.
    pub async fn heartbeat(self: &Arc<Self>, deadline: Deadline) {
        // An error reply is an answer, too. `await_reply` has drawn the conclusions from silence.
        let _ = self.call(|_| Outgoing::of(redis::cmd("PING")), deadline).await;
    }

    /// Sends a command behind all commands that were sent before, and waits for nothing. It is not sent when there is no
    /// connection, or when too many commands are on their way. When the connection ends before the command is answered, `on_lost` is
    /// called.
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
/// that the server does not know the script. What it sent now might come after its own withdrawal, which another connection has sent.
fn check_time(deadline: Deadline) -> Result<(), CallError> {
    mutant!(SentTooLate => return Ok(()));
    // Who has waited has counted the deadline anew, so no clock is read here.
    if deadline.span().is_zero() { Err(CallError::NoConnection(Duration::ZERO).before_sending()) } else { Ok(()) }
}
