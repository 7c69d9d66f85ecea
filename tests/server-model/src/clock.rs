//! [`Clock`]: the time that commands see, and how long scripts take.

use crate::keyspace::Millis;

/// The time that the commands of a script see while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScriptTime {
    /// Each command sees the current time, as on Redis 7.0.
    #[default]
    Passes,
    /// Each command, including `TIME`, sees the start of the script, as on Redis 7.2 and newer, and on Valkey.
    StandsStill,
}

/// How long the server takes before a command of a script, in microseconds.
type Pace = Box<dyn FnMut() -> u64 + Send>;

#[derive(Default)]
pub(crate) struct Clock {
    script_time: ScriptTime,
    pace: Option<Pace>,
    /// When the current command began, in microseconds since the epoch.
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
