//! [`Options`]: the command line that every story understands.

use std::ops::Range;

use clap::{CommandFactory, FromArgMatches, Parser};

/// The command line of a story.
#[derive(Clone, Debug, Parser)]
#[command(args_override_self = true)]
pub struct Options {
    /// The Redis server for locks and numbers, such as `redis://127.0.0.1:6379`
    #[arg(long, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    pub redis: Option<String>,

    /// How many processes share the tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub processes: u32,

    /// How many tasks are released at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tasks: u32,

    /// How many different things the tasks are after
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub items: u32,

    /// Do without the lock, to see the damage
    #[arg(long)]
    pub no_lock: bool,

    /// Which of the processes this one is; set by the story for its children
    #[arg(long, hide = true)]
    pub worker: Option<u32>,

    /// Whether this process only holds the lock until it is killed; set by the story for its child
    #[arg(long, hide = true)]
    pub holder: bool,

    /// The namespace of the run that this process belongs to; set by the story for its children
    #[arg(long, hide = true)]
    pub(crate) namespace: Option<String>,
}

/// A story's defaults.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// One sentence for `--help`.
    pub about: &'static str,
    /// The default of `--tasks`.
    pub tasks: u32,
    /// The default of `--items`.
    pub items: u32,
    /// The default of `--processes`.
    pub processes: u32,
}

impl Options {
    /// Reads the command line; ends the process with a message if it is wrong.
    #[must_use]
    pub fn read(defaults: Defaults) -> Self {
        let or = |default: u32| move |arg: clap::Arg| arg.required(false).default_value(default.to_string());
        let command = Self::command()
            .about(defaults.about)
            .mut_arg("tasks", or(defaults.tasks))
            .mut_arg("items", or(defaults.items))
            .mut_arg("processes", or(defaults.processes));
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// The tasks of this process, if it is one of several workers.
    #[must_use]
    pub fn part(&self) -> Option<Range<u32>> {
        self.worker.map(|worker| self.share(worker)..self.share(worker + 1))
    }

    /// The item that a task wants: in turn, so that the tasks of every process want every item.
    #[must_use]
    pub fn item_of(&self, task: u32) -> u64 {
        u64::from(task % self.items) + 1
    }

    /// The items, counted from 1.
    #[must_use]
    pub fn item_numbers(&self) -> Range<u64> {
        1..u64::from(self.items) + 1
    }

    /// How many tasks want this item.
    #[must_use]
    pub fn tasks_for(&self, item: u64) -> u32 {
        let spare = u64::from(self.tasks % self.items);
        self.tasks / self.items + u32::from(item <= spare)
    }

    /// Whether another process of the same story started this one.
    pub(crate) fn is_child(&self) -> bool {
        self.namespace.is_some()
    }

    /// The first task of a worker.
    fn share(&self, worker: u32) -> u32 {
        let first = u64::from(self.tasks) * u64::from(worker) / u64::from(self.processes);
        u32::try_from(first).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("story").chain(arguments.split(' ')))
    }

    #[test]
    fn the_parts_of_the_workers_are_all_tasks() -> Result<(), clap::Error> {
        let mut tasks = Vec::new();
        for worker in 0..4 {
            let worker = options(&format!("--tasks 10 --items 3 --processes 4 --worker {worker}"))?;
            tasks.extend(worker.part().into_iter().flatten());
        }
        assert_eq!(tasks, (0..10).collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn the_tasks_for_an_item_are_those_that_are_after_it() -> Result<(), clap::Error> {
        let options = options("--tasks 10 --items 3 --processes 1")?;
        for item in options.item_numbers() {
            let after_it = (0..options.tasks).filter(|task| options.item_of(*task) == item).count();
            assert_eq!(u32::try_from(after_it).ok(), Some(options.tasks_for(item)));
        }
        Ok(())
    }

    #[test]
    fn an_option_of_the_parent_gives_way_to_the_same_one_for_its_child() -> Result<(), clap::Error> {
        let options = options("--tasks 1 --items 1 --processes 2 --namespace parent --namespace child")?;
        assert_eq!(options.namespace.as_deref(), Some("child"));
        Ok(())
    }
}
