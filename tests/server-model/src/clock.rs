//! [`Clock`]: what time it is for commands, and how long scripts take.

use crate::keyspace::Millis;

/// What the commands of a script see of the time that passes while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScriptTime {
    /// Each command sees what time it is, as on Redis 7.0.
    #[default]
    Passes,
    /// Each command, `TIME` included, sees when the script began, as on Redis 7.2 and newer, and on Valkey.
    StandsStill,
}

/// How long the server takes before a command of a script, in microseconds.
type Pace = Box<dyn FnMut() -> u64 + Send>;

#[derive(Default)]
pub(crate) struct Clock {
    script_time: ScriptTime,
    pace: Option<Pace>,
    /// When the command began that clients wait for, in microseconds since the epoch.
    began: u64,
    now: u64,
}

impl Clock {
    pub(crate) fn set_script_time(&mut self, script_time: ScriptTime) {
        self.script_time = script_time;
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// A command of a client begins.
    pub(crate) fn begin(&mut self, micros: u64) {
        (self.began, self.now) = (micros, micros);
    }

    /// A command of a script is about to run.
    pub(crate) fn go_on(&mut self) {
        if let Some(pace) = &mut self.pace {
            self.now += pace();
        }
    }

    /// How long the last command of a client took.
    pub(crate) fn taken(&self) -> u64 {
        self.now - self.began
    }

    /// The time that a command sees.
    pub(crate) fn micros(&self) -> u64 {
        match self.script_time {
            ScriptTime::Passes => self.now,
            ScriptTime::StandsStill => self.began,
        }
    }

    pub(crate) fn millis(&self) -> Millis {
        millis(self.micros())
    }
}

pub(crate) fn millis(micros: u64) -> Millis {
    Millis::try_from(micros / 1000).unwrap_or(Millis::MAX)
}
