// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A drop-tail that never drops two packets of one input port in a row, while each port loses as
 * many packets as it would without that.
 *
 * A shadow of the queue has the packets that plain drop-tail would have taken of these arrivals. A
 * packet that is dropped there is dropped here too, unless it follows a drop of its own port. Then
 * it is taken, beyond the limit, and its port owes a drop. It pays with its next packet that the
 * shadow takes and that follows no drop of its port.
 *
 * Options: the limit in bytes; 1, or 0 for plain drop-tail.
 */

#include <linux/module.h>
#include <linux/skbuff.h>
#include <net/pkt_sched.h>

#define MOST_PORTS 64

struct port {
	int ifindex;
	u32 owed;
	bool lost;
};

struct options {
	u32 limit;
	u32 spread;
};

struct spread {
	struct options options;
	/* what the queue holds beyond its shadow */
	u32 extra_bytes;
	struct port ports[MOST_PORTS];
};

static struct port *port_of(struct spread *q, int ifindex)
{
	struct port *p;

	for (p = q->ports; p < q->ports + MOST_PORTS && p->ifindex; p++)
		if (p->ifindex == ifindex)
			return p;
	if (p == q->ports + MOST_PORTS)
		return NULL;
	p->ifindex = ifindex;
	return p;
}

static int spread_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct spread *q = qdisc_priv(sch);
	u32 len = qdisc_pkt_len(skb);
	bool lost = sch->qstats.backlog - q->extra_bytes + len > q->options.limit;
	struct port *p = q->options.spread && skb->skb_iif ? port_of(q, skb->skb_iif) : NULL;

	if (p) {
		if (lost && p->lost) {
			p->owed++;
			q->extra_bytes += len;
			lost = false;
		} else if (!lost && !p->lost && p->owed) {
			p->owed--;
			q->extra_bytes -= min(q->extra_bytes, len);
			lost = true;
		}
		p->lost = lost;
	}
	return lost ? qdisc_drop(skb, sch, to_free) : qdisc_enqueue_tail(skb, sch);
}

static struct sk_buff *spread_dequeue(struct Qdisc *sch)
{
	struct spread *q = qdisc_priv(sch);
	struct sk_buff *skb = qdisc_dequeue_head(sch);

	/* The shadow cannot hold less than nothing. */
	q->extra_bytes = min(q->extra_bytes, sch->qstats.backlog);
	return skb;
}

static int spread_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct spread *q = qdisc_priv(sch);

	if (!opt || nla_len(opt) < sizeof(q->options))
		return -EINVAL;
	memcpy(&q->options, nla_data(opt), sizeof(q->options));
	return 0;
}

static void spread_reset(struct Qdisc *sch)
{
	struct spread *q = qdisc_priv(sch);

	q->extra_bytes = 0;
	memset(q->ports, 0, sizeof(q->ports));
	qdisc_reset_queue(sch);
}

static int spread_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct spread *q = qdisc_priv(sch);

	return nla_put(skb, TCA_OPTIONS, sizeof(q->options), &q->options) ? -1 : skb->len;
}

static struct Qdisc_ops spread_qdisc_ops __read_mostly = {
	.id = "spread",
	.priv_size = sizeof(struct spread),
	.enqueue = spread_enqueue,
	.dequeue = spread_dequeue,
	.peek = qdisc_peek_head,
	.init = spread_init,
	.reset = spread_reset,
	.change = spread_init,
	.dump = spread_dump,
	.owner = THIS_MODULE,
};

static int __init spread_module_init(void)
{
	return register_qdisc(&spread_qdisc_ops);
}

static void __exit spread_module_exit(void)
{
	unregister_qdisc(&spread_qdisc_ops);
}

module_init(spread_module_init);
module_exit(spread_module_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Drop-tail without two drops of one port in a row");
