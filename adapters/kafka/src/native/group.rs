//! Who is in a consumer group, and who has what.

use super::admin::{answer, c_text, options, queue, slice_of, text_of};
use crate::error::{failed, from_code};
use onlooker_ports::{GroupState, PortError};
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka_sys as sys;
use std::collections::BTreeMap;
use std::time::Duration;

/// A group as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) state: GroupState,
    pub(crate) members: usize,
    /// By partition of the topic: the member's id and the host that it is on.
    pub(crate) owners: BTreeMap<i32, String>,
}

impl Described {
    /// Nobody has ever joined it.
    const UNKNOWN: Self = Self { state: GroupState::Unknown, members: 0, owners: BTreeMap::new() };
}

/// Asks the group's coordinator. Blocks.
pub(crate) fn describe<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    topic: &str,
    wait: Duration,
) -> Result<Described, PortError> {
    let what = format!("describing group {group}");
    let op = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let (options, queue, name) = (options(client, op, wait)?, queue(client)?, c_text(group)?);
    let mut names = [name.as_ptr()];
    // SAFETY: names, options and queue live during the call, which copies what it keeps.
    let event = unsafe {
        sys::rd_kafka_DescribeConsumerGroups(
            client.native_ptr(),
            names.as_mut_ptr(),
            names.len(),
            options.ptr(),
            queue.ptr(),
        );
        answer(&queue, wait, &what)?
    };
    // SAFETY: everything read here belongs to the event, which lives until the end of the function.
    unsafe {
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event.ptr());
        let mut count = 0;
        let groups = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
        let (false, Some(first)) = (groups.is_null(), slice_of(groups, count).first()) else {
            return Err(failed(format_args!("{what}: an empty answer")));
        };
        let error = sys::rd_kafka_ConsumerGroupDescription_error(*first);
        if !error.is_null() {
            return match sys::rd_kafka_error_code(error) {
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => read(*first, topic),
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND => Ok(Described::UNKNOWN),
                code => Err(from_code(code.into(), what)),
            };
        }
        read(*first, topic)
    }
}

/// # Safety
/// The description lives.
unsafe fn read(
    group: *const sys::rd_kafka_ConsumerGroupDescription_t,
    topic: &str,
) -> Result<Described, PortError> {
    use sys::rd_kafka_consumer_group_state_t as State;
    // SAFETY: the caller's promise; members and their lists belong to the description.
    unsafe {
        let state = match sys::rd_kafka_ConsumerGroupDescription_state(group) {
            State::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE => GroupState::Stable,
            State::RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE => GroupState::Rebalancing,
            State::RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY => GroupState::Empty,
            _ => GroupState::Unknown,
        };
        let members = sys::rd_kafka_ConsumerGroupDescription_member_count(group);
        let mut owners = BTreeMap::new();
        for index in 0..members {
            let member = sys::rd_kafka_ConsumerGroupDescription_member(group, index);
            let id = text_of(sys::rd_kafka_MemberDescription_consumer_id(member));
            let host = text_of(sys::rd_kafka_MemberDescription_host(member));
            let owner = format!("{id}@{}", host.trim_start_matches('/'));
            let assignment = sys::rd_kafka_MemberDescription_assignment(member);
            if assignment.is_null() {
                continue;
            }
            let list = sys::rd_kafka_MemberAssignment_partitions(assignment);
            if list.is_null() {
                continue;
            }
            let count = usize::try_from((*list).cnt).unwrap_or(0);
            for element in slice_of((*list).elems.cast_const(), count) {
                if text_of(element.topic) == topic {
                    owners.insert(element.partition, owner.clone());
                }
            }
        }
        Ok(Described { state, members, owners })
    }
}
