//! `onlooker status`: servers, topics, groups and rooms at a glance.

use super::at::{At, Told};
use super::finding::{Finding, Level, in_time};
use super::{Out, Sight, exit};
use crate::cli::say;
use anyhow::Result;
use futures::future::join_all;
use onlooker_ports::{CountObserver, GroupState, GroupView, LogObserver, Topic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Shows servers, topics, groups and rooms at a glance
///
/// What is down is one line, and the rest is shown. Exit code 3 if something is down or not ready.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: onlooker status --room 10.0.0.5:9100 --room 10.0.0.6:9100")]
pub(crate) struct StatusArgs {
    /// The admin listener of a cluster's room, which is asked too; may be repeated
    #[arg(long = "room", value_name = "HOST:PORT")]
    rooms: Vec<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {}

pub(super) async fn answer<S: Sight>(sight: &S, _: Ask, out: Out) -> Result<()> {
    let servers = sight.servers().await;
    let is_down = |name: &str| servers.iter().any(|s| s.subject == name && s.level == Level::Down);
    let (log_is_down, counts_are_down) = (is_down("kafka"), is_down("counters redis"));
    for server in &servers {
        out.line(server).await?;
    }
    if log_is_down {
        return Ok(());
    }
    // At once: each may take as long as people are willing to wait for all of them.
    let groups = [Topic::Views, Topic::Counted].into_iter();
    let groups = groups.filter(|topic| *topic == Topic::Views || !counts_are_down);
    let (topics, groups) = tokio::join!(
        join_all(super::topics::ALL.into_iter().map(|topic| of_topic(sight, topic))),
        join_all(groups.map(|topic| of_group(sight, topic))),
    );
    for finding in topics.iter().chain(&groups) {
        out.line(finding).await?;
    }
    Ok(())
}

async fn of_topic<S: Sight>(sight: &S, topic: Topic) -> Finding {
    let subject = format!("topic {}", sight.topic(topic));
    match in_time(sight.log().bounds(topic)).await {
        Err(why) => Finding::new(Level::Down, subject, why),
        Ok(bounds) => {
            let offsets: i64 = bounds.iter().map(|bounds| bounds.end - bounds.earliest).sum();
            let removed = bounds.iter().filter(|bounds| bounds.earliest > 0).count();
            let more = match removed {
                0 => String::new(),
                n => format!(", retention has removed records of {n}"),
            };
            Finding::new(Level::Ok, subject, format!("{} partitions, {offsets} offsets{more}", bounds.len()))
        }
    }
}

async fn of_group<S: Sight>(sight: &S, topic: Topic) -> Finding {
    let looked = async {
        let Some(group) = sight.log().group(topic).await? else { return Ok(None) };
        let bounds = sight.log().bounds(topic).await?;
        let (mut waiting, mut ahead) = (0, None);
        for (partition, ((committed, _), bounds)) in (0..).zip(group.partitions.iter().zip(&bounds)) {
            // Where the counters stand is in their store: what is committed is what is durable.
            let at = match topic {
                Topic::Counted => sight.counts().observe(partition, &[]).await?.0,
                _ => committed.as_ref().map(|committed| committed.offset),
            };
            waiting += (bounds.stable - at.unwrap_or(0).max(bounds.earliest)).max(0);
            if at.is_some_and(|at| at > bounds.end) {
                ahead = Some(partition);
            }
        }
        anyhow::Ok(Some((group, waiting, ahead)))
    };
    let name = sight.topic(topic);
    match in_time(looked).await {
        Err(why) => Finding::new(Level::Down, format!("group on {name}"), why),
        Ok(None) => Finding::new(Level::Down, format!("group on {name}"), "there is none"),
        Ok(Some((group, waiting, ahead))) => told(&name, &group, waiting, ahead),
    }
}

/// `ahead`: a partition where more is said to be done than the log has.
fn told(topic: &str, group: &GroupView, waiting: i64, ahead: Option<i32>) -> Finding {
    let owned = group.partitions.iter().filter(|(_, owner)| owner.is_some()).count();
    let mut detail = format!(
        "{}, {} members own {owned} of {} partitions, {waiting} offsets wait",
        group.state.as_str(),
        group.members,
        group.partitions.len()
    );
    if let Some(partition) = ahead {
        detail += &format!("; partition {partition} stands beyond the log's end: see `onlooker lag`");
    }
    let level = match group.state {
        _ if ahead.is_some() => Level::Refused,
        GroupState::Stable if owned == group.partitions.len() => Level::Ok,
        GroupState::Rebalancing | GroupState::Stable => Level::Warning,
        GroupState::Empty | GroupState::Unknown => Level::Down,
    };
    Finding::new(level, format!("group {} on {topic}", group.name), detail)
}

/// What a room says of itself.
async fn of_room(name: String, url: String) -> Finding {
    let asked = async {
        let answer = crate::http::client(Duration::from_secs(4))?.get(format!("{url}/readyz")).send().await?;
        anyhow::Ok(answer.json::<Value>().await?)
    };
    let report = match in_time(asked).await {
        Ok(report) => report,
        Err(why) => return Finding::new(Level::Down, name, why),
    };
    let components = report["components"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let waits: Vec<String> = components
        .iter()
        .filter(|component| component["status"] != "ready")
        .map(|component| format!("{}: {}", text(&component["name"]), text(&component["reason"])))
        .collect();
    let parts: Vec<String> = components.iter().map(|component| text(&component["name"])).collect();
    match report["ready"].as_bool() {
        Some(true) => Finding::new(Level::Ok, name, format!("ready: {}", parts.join(", "))),
        Some(false) => Finding::new(Level::Down, name, format!("not ready: {}", waits.join("; "))),
        None => Finding::new(Level::Down, name, "answers, and is no room"),
    }
}

/// A line for people, in red where somebody has to do something.
pub(super) fn show(finding: &Finding) -> String {
    let Finding { level, subject, detail } = finding;
    let (word, colour) = match level {
        Level::Ok => ("ok", ""),
        Level::Warning => ("warning", "\x1b[33m"),
        Level::Refused => ("REFUSED", "\x1b[31m"),
        Level::Down => ("DOWN", "\x1b[31m"),
    };
    let line = format!("{word:<8} {subject:<28} {}", detail.split_whitespace().collect::<Vec<_>>().join(" "));
    if std::io::stdout().is_terminal() && !colour.is_empty() {
        return format!("{colour}{line}\x1b[0m\n");
    }
    line + "\n"
}

pub(crate) async fn run(args: StatusArgs, told: Told) -> Result<ExitCode> {
    let mut rooms: Vec<(String, String)> = Vec::new();
    match args.at.session(&told).await? {
        Some(session) => rooms.push((format!("process {}", session.pid), session.admin)),
        None => {
            let named = args.rooms.iter();
            rooms.extend(named.map(|address| (format!("room {address}"), format!("http://{address}"))));
        }
    }
    let mut worst = Level::Ok;
    let mut say = |finding: &Finding| {
        worst = worst.max(finding.level);
        say(&if args.at.json { serde_json::to_string(finding)? + "\n" } else { show(finding) })
    };
    let asked = rooms.into_iter().map(|(name, url)| of_room(name, url));
    let ask = super::Ask::Status(Ask {});
    let (answered, rooms) = tokio::join!(
        args.at.ask(told, ask, |value| say(&serde_json::from_value(value)?)),
        futures::future::join_all(asked)
    );
    answered?;
    for room in &rooms {
        say(room)?;
    }
    Ok(exit(worst > Level::Warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_as_well_as_its_members() {
        let level = |state, owner: Option<&str>| {
            let partitions = vec![(None, owner.map(str::to_owned))];
            told("t", &GroupView { name: "g".into(), state, members: 1, partitions }, 3, None).level
        };
        assert_eq!(level(GroupState::Stable, Some("one")), Level::Ok);
        assert_eq!(level(GroupState::Stable, None), Level::Warning);
        assert_eq!(level(GroupState::Rebalancing, None), Level::Warning);
        assert_eq!(level(GroupState::Empty, None), Level::Down);
        let partitions = vec![(None, Some("one".to_owned()))];
        let group = GroupView { name: "g".into(), state: GroupState::Stable, members: 1, partitions };
        let ahead = told("t", &group, 0, Some(7));
        assert_eq!(ahead.level, Level::Refused);
        assert!(ahead.detail.contains("partition 7 stands beyond the log's end"), "{}", ahead.detail);
    }

    #[test]
    fn what_is_down_is_one_line() {
        let line = show(&Finding::new(Level::Down, "kafka", "no answer\nfrom anybody"));
        assert_eq!(line, "DOWN     kafka                        no answer from anybody\n");
    }
}
