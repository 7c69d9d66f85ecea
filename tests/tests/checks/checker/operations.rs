//! The history that the soak writes for other checkers is well formed, and shows who holds a lock when.

use std::collections::{BTreeMap, HashMap};

use history::operations::{Op, Operation, Outcome};
use tests::soak::round::Setting;
use tests::soak::{Kind, Plan, round};

use super::broken::Good;

/// A round of a few seconds in which processes are killed.
fn record() -> Vec<Operation> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let setting = Setting { history: Some(&file), ..Setting::new("good", Some("checker::worker"), &|| false) };
    let kills = |plan: &Plan| plan.strikes().iter().filter(|strike| strike.kind == Kind::KillWorker).count();
    let plan = (1..99).map(Plan::short).find(|plan| kills(plan) > 2).unwrap();
    println!("{}", round::<Good>(&plan, setting));
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The holds of each lock: from the grant to the call of release, or to the loss.
fn held(history: &[Operation]) -> BTreeMap<&str, Vec<(u64, u64)>> {
    let mut grants = HashMap::new();
    let mut held: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for one in history {
        match (one.op, one.outcome) {
            (Op::Acquire | Op::Try, Outcome::Ok) => {
                let is_first = grants.insert(one.hold, one.returned.unwrap()).is_none();
                assert!(is_first, "{one:?}");
            }
            (Op::Release, Outcome::Ok) | (Op::Lost, _) => {
                let granted = grants.remove(&one.hold).unwrap_or_else(|| panic!("an end without a grant: {one:?}"));
                assert!(granted <= one.invoke, "{one:?}");
                held.entry(&one.key).or_default().push((granted, one.invoke));
            }
            _ => {}
        }
    }
    assert!(grants.is_empty(), "without an end: {grants:?}");
    held
}

/// The locks with overlapping holds.
fn overlaps(history: &[Operation]) -> Vec<&str> {
    let mut by_key = held(history);
    for held in by_key.values_mut() {
        held.sort_unstable();
    }
    by_key.retain(|_, held| !held.is_sorted_by(|one, next| one.1 <= next.0));
    by_key.into_keys().collect()
}

#[test]
fn a_recorded_history_is_well_formed_and_a_planted_overlap_shows() {
    let mut history = record();
    assert!(history.is_sorted_by_key(|one| one.invoke));
    let mut last: HashMap<&str, &Operation> = HashMap::new();
    let mut open = 0;
    for one in history.iter().filter(|one| one.op != Op::Lost && one.op != Op::Fault) {
        assert_eq!(one.returned.is_none(), one.outcome == Outcome::Unknown, "{one:?}");
        assert!(one.returned.is_none_or(|returned| returned >= one.invoke), "{one:?}");
        // The operations of one client don't overlap.
        if let Some(before) = last.insert(&one.client, one) {
            assert!(before.returned.is_none_or(|returned| returned <= one.invoke), "{before:?} and {one:?}");
        }
        open += u32::from(one.returned.is_none());
    }
    let killed = history.iter().filter(|one| one.op == Op::Fault && one.key == "KillWorker").count();
    assert!(killed > 0 && open > 0, "{killed} processes were killed, {open} calls are open");
    assert_eq!(overlaps(&history), Vec::<&str>::new());

    let is_long = |one: &Operation| one.op == Op::Release && one.outcome == Outcome::Ok;
    let released = history.iter().rposition(is_long).unwrap();
    let acquired = history.iter().position(|one| one.hold == history[released].hold).unwrap();
    let (key, second) = (history[released].key.clone(), Some(usize::MAX));
    for at in [released, acquired] {
        history.insert(at, Operation { client: "x/0".to_owned(), hold: second, ..history[at].clone() });
    }
    assert_eq!(overlaps(&history), [key]);
}
