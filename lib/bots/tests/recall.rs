//! What the lists find in agents that others gathered, and in a real log. docs/bots.md shows the same figures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use flate2::read::GzDecoder;
use onlooker_bots::{Class, LIST_VERSION, SOURCES, classify, patterns};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn lines(path: &str) -> Vec<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(here(path)).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn fixture(name: &str) -> Vec<String> {
    lines(&format!("tests/data/{name}.txt.gz"))
}

/// The last quoted text of each row of an access log; one row is cut short and has none.
fn agents_of_log() -> Vec<String> {
    let rows = lines("../../onlooker/tests/data/blog_access.log.gz");
    let agent = |row: &String| Some(row.strip_suffix('"')?.rsplit_once(" \"")?.1.to_owned());
    rows.iter().map(|row| agent(row).unwrap_or_default()).collect()
}

fn found(agents: &[String]) -> usize {
    agents.iter().filter(|agent| classify(agent).is_some()).count()
}

fn by_class(agents: &[String]) -> BTreeMap<Class, usize> {
    let mut counts: BTreeMap<Class, usize> = Class::ALL.iter().map(|class| (*class, 0)).collect();
    agents
        .iter()
        .filter_map(|agent| classify(agent))
        .for_each(|bot| *counts.entry(bot.class).or_default() += 1);
    counts
}

#[test]
fn what_is_listed_is_found_and_people_are_not() {
    let [known, bots, more] = ["crawler_user_agents", "isbot_bots", "ua_parser_bots"].map(fixture);
    let missed: Vec<_> = known.iter().filter(|agent| classify(agent).is_none()).collect();
    // Those that people's own apps send too: see data/left-out.tsv.
    assert!(missed.len() * 200 < known.len(), "{missed:#?}");
    assert_eq!((found(&bots), found(&more)), (bots.len(), more.len()));
    let browsers = fixture("browsers");
    assert_eq!(found(&browsers), 0, "of {}", browsers.len());
    let apps = fixture("ua_parser_apps");
    assert!(found(&apps) * 1_000 <= apps.len(), "{} of {}", found(&apps), apps.len());
}

#[test]
fn agents_that_are_often_got_wrong() {
    let class = |agent| classify(agent).map(|bot| bot.class);
    for (agent, expected) in [
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 HeadlessChrome/120.0.0.0 Safari/537.36",
            Class::Automation,
        ),
        ("Mozilla/5.0 (Unknown; Linux) AppleWebKit/538.1 PhantomJS/2.1.1 Safari/538.1", Class::Automation),
        (
            "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko; compatible; Bytespider)",
            Class::AiCrawler,
        ),
        ("Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)", Class::AiCrawler),
        ("Mozilla/5.0 (compatible; ClaudeBot/1.0; +claudebot@anthropic.com)", Class::AiCrawler),
        ("anthropic-ai", Class::AiCrawler),
        ("CCBot/2.0 (https://commoncrawl.org/faq/)", Class::AiCrawler),
        ("Mozilla/5.0 (compatible; ChatGPT-User/1.0; +https://openai.com/bot)", Class::AiAssistant),
        ("Mozilla/5.0 (compatible; Claude-User/1.0; +Claude-User@anthropic.com)", Class::AiAssistant),
        ("Mozilla/5.0 (compatible; Perplexity-User/1.0)", Class::AiAssistant),
        ("facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", Class::Preview),
        ("Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)", Class::Preview),
        ("Twitterbot/1.0", Class::Preview),
        ("WhatsApp/2.23.20.0 A", Class::Preview),
        ("Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)", Class::Preview),
        ("Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)", Class::Monitor),
        ("Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)", Class::Monitor),
        ("curl/8.5.0", Class::Library),
        ("python-requests/2.31.0", Class::Library),
        ("okhttp/4.12.0", Class::Library),
        ("Go-http-client/2.0", Class::Library),
        ("Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)", Class::FeedReader),
        ("NetNewsWire (RSS Reader; https://netnewswire.com/)", Class::FeedReader),
        ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", Class::Search),
        ("Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)", Class::Other),
    ] {
        assert_eq!(class(agent), Some(expected), "{agent}");
    }
    for person in [
        "",
        "Mozilla/5.0 (Linux; Android 10; CUBOT X30) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36",
        "Mozilla/5.0 (Linux; Android 4.4.2; CUBOT) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/34.0.1847.114 Mobile Safari/537.36",
        "Mozilla/5.0 (Linux; U; Android 4.2.2; en-us; CUBOT GT99 Build/JDQ39) AppleWebKit/534.30 Version/4.0 Mobile Safari/534.30",
        "Mozilla/5.0 (Linux; Android 4.4.1; HTC Butterfly S Build/KRT16M) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.99 Mobile Safari/537.36",
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        "WhatsApp/2.11.92 Android/4.0.4 Device/HTC-HTC_HD2",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) GSA/280.0 Mobile/15E148 Safari/604.1",
    ] {
        assert_eq!(classify(person), None, "{person}");
    }
}

#[test]
fn the_document_shows_these_figures() {
    let mut rows = vec!["| agents | how many | found |".to_owned(), "|---|---|---|".to_owned()];
    for (name, what) in [
        ("crawler_user_agents", "bots: the instances of crawler-user-agents"),
        ("isbot_bots", "bots: the fixture of isbot"),
        ("ua_parser_bots", "bots: of ua-parser's tests, as isbot has them"),
        ("browsers", "people: every 40th browser of isbot's fixture"),
        ("ua_parser_apps", "people: every 8th browser and app of ua-parser's tests, as isbot has them"),
        ("isbot_js_browsers", "odd agents, which the npm package isbot takes for browsers"),
    ] {
        let agents = fixture(name);
        rows.push(format!("| {what} | {} | {} |", agents.len(), found(&agents)));
    }
    rows.push(String::new());
    let log = agents_of_log();
    rows.push("| class | instances of crawler-user-agents | rows of the log |".to_owned());
    rows.push("|---|---|---|".to_owned());
    let (known, seen) = (by_class(&fixture("crawler_user_agents")), by_class(&log));
    rows.extend(
        Class::ALL
            .iter()
            .map(|class| format!("| `{}` | {} | {} |", class.as_str(), known[class], seen[class])),
    );
    rows.push(format!(
        "| all | {} | {} of {} |",
        known.values().sum::<usize>(),
        seen.values().sum::<usize>(),
        log.len()
    ));
    rows.push(String::new());
    let [first, second, ours] = patterns();
    let [(one, its), (other, others)] = SOURCES;
    rows.push(format!(
        "List {LIST_VERSION}: {first} patterns of {one} {its}, {second} of {other} {others}, {ours} of ours."
    ));
    let document = fs::read_to_string(here("../../docs/bots.md")).unwrap_or_default();
    let shown =
        document.split_once("<!-- figures -->\n").and_then(|(_, rest)| rest.split_once("\n<!-- end -->"));
    let expected = rows.join("\n");
    assert!(shown.is_some_and(|(shown, _)| shown == expected), "docs/bots.md should have:\n{expected}");
}
