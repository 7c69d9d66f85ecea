//! `lockctl doctor URL`

use std::process::ExitCode;

use serde::Serialize;

use crate::failure::Failure;
use crate::output::{BAD, DOUBT, GOOD, Output};
use crate::place::Place;

mod checks;
mod clock;
mod trial;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// Locks work, but may break in a way that the text names.
    Doubt,
    Bad,
    /// The server refused to answer, mostly because of a missing right.
    Unknown,
}

#[derive(Debug, Serialize)]
struct Finding {
    server: String,
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to change.
    advice: Option<String>,
}

impl Finding {
    fn new(server: &str, check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { server: server.to_owned(), check, verdict, found: found.into(), advice: None }
    }

    /// The server refuses to answer.
    fn unknown(server: &str, check: &'static str, right: &str) -> Self {
        Self::new(server, check, Verdict::Unknown, format!("the server does not tell; that needs {right}"))
    }

    fn advise(self, advice: &str) -> Self {
        Self { advice: Some(advice.to_owned()), ..self }
    }

    fn text(&self) -> String {
        let (style, word) = match self.verdict {
            Verdict::Good => (GOOD, "good   "),
            Verdict::Doubt => (DOUBT, "doubt  "),
            Verdict::Bad => (BAD, "bad    "),
            Verdict::Unknown => (DOUBT, "unknown"),
        };
        let advice =
            self.advice.as_ref().map(|advice| format!("\n                       -> {advice}")).unwrap_or_default();
        format!("{style}{word}{style:#}  {:<12}  {}{advice}\n", self.check, crate::output::clean(&self.found))
    }
}

pub(crate) async fn run(
    place: &Place,
    output: &Output,
    server: Option<String>,
    prefix: Option<&str>,
) -> Result<ExitCode, Failure> {
    let locks = place.connect_to(server.clone(), |builder| builder).await?;
    let servers = locks.servers();
    let mut findings = Vec::new();
    for server in &servers {
        findings.extend(checks::all(server, servers.len()).await);
    }
    let other = place.connect_to(server, |builder| builder).await?;
    findings.extend(trial::run(&locks, &other, prefix).await);
    output.print(&findings, || report(&findings))?;
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    let mut server = "";
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            text.push_str(server);
            text.push('\n');
        }
        text += &finding.text();
    }
    text
}
