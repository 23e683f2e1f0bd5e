//! The answer for people.

use super::Size;
use std::fmt::Write;

/// Groups digits, so that millions can be told from thousands.
fn number(value: f64) -> String {
    let digits = format!("{:.0}", value.round());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(super) fn text(size: &Size) -> String {
    let Size { load, cluster, one_machine } = size;
    let mut out = format!(
        "{} views and {} reads a second, {} items\n\nA cluster, one machine of a tier lost, below 70 % busy:\n\n",
        number(load.views),
        number(load.reads),
        number(load.items)
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{:<15} {:>4}  {:<12} {:>5} {:>10} {:>10} {:>6} {:>9} {:>9}",
        "tier", "", "machine", "vCPU", "memory GiB", "disk GiB", "busy", "one lost", "$ a month"
    );
    for tier in &cluster.tiers {
        let _ = writeln!(
            out,
            "{:<15} {:>4}  {:<12} {:>5} {:>10} {:>10} {:>6} {:>9} {:>9}",
            tier.name,
            format!("{} x", tier.replicas),
            tier.machine,
            number(tier.vcpus),
            format!("{:.1}", tier.memory_gib),
            number(tier.disk_gib),
            percent(tier.busy),
            percent(tier.busy_one_lost),
            number(tier.dollars_a_month)
        );
    }
    let traffic = format!("{} GiB between zones", number(cluster.traffic_gib_a_month));
    let _ = writeln!(out, "{:<15} {traffic:<62} {:>10}", "traffic", number(cluster.traffic_dollars_a_month));
    let _ = writeln!(out, "{:<79} {:>9}", "all", number(cluster.dollars_a_month));
    let _ = writeln!(
        out,
        "\nTopics with {} partitions; about {} items change between two flushes. Both Redis have each shard twice.",
        cluster.partitions,
        number(cluster.items_changed_a_flush)
    );
    let _ = writeln!(
        out,
        "\nOne machine with `onlooker run`, which nobody stands in for: {:.1} cores busy, {:.1} GiB of memory, {} GiB of disk.\n\
         embedded.dedup_bytes = {}, embedded.counts_bytes = {}",
        one_machine.cores,
        one_machine.memory_gib,
        number(one_machine.disk_gib),
        one_machine.dedup_bytes,
        one_machine.counts_bytes
    );
    let _ = match &one_machine.fits {
        Some(fit) => writeln!(
            out,
            "{} carries it, {} busy, for $ {} a month. At most, as far as two cores tell about more:",
            fit.machine,
            percent(fit.busy),
            number(fit.dollars_a_month)
        ),
        None => writeln!(
            out,
            "No machine of these prices carries it. At most, as far as two cores tell about more:"
        ),
    };
    for most in &one_machine.machines {
        let _ = writeln!(
            out,
            "  {:<12} {:>8} views and {:>8} reads a second, $ {} a month",
            most.machine,
            number(most.views_per_s),
            number(most.reads_per_s),
            number(most.dollars_a_month)
        );
    }
    out
}
