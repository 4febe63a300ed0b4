// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A drop-tail that lets some packets of an input port pass between any two drops of that port, while
 * each port loses as many packets as it would without that.
 *
 * A shadow of the queue has the packets that plain drop-tail would have taken of these arrivals. A
 * packet that is dropped there is dropped here too, unless too few packets of its port passed since
 * the port's last drop. Then it is taken, beyond the limit, and its port owes a drop. The port pays
 * with its next packet that the shadow takes, once enough of its packets passed.
 *
 * Options: the limit in bytes; how many packets of a port pass between two drops, 0 for plain
 * drop-tail. A port whose share of drops would be above 1 in that many cannot pay all it owes.
 */

#include <linux/module.h>
#include <linux/skbuff.h>
#include <net/pkt_sched.h>

#define MOST_PORTS 64

struct port {
	int ifindex;
	u32 owed;
	/* its packets since its last drop */
	u32 passed;
};

struct options {
	u32 limit;
	u32 gap;
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
	p->passed = q->options.gap;
	return p;
}

static int spread_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct spread *q = qdisc_priv(sch);
	u32 len = qdisc_pkt_len(skb);
	bool lost = sch->qstats.backlog - q->extra_bytes + len > q->options.limit;
	struct port *p = q->options.gap && skb->skb_iif ? port_of(q, skb->skb_iif) : NULL;

	if (p) {
		if (lost && p->passed < q->options.gap) {
			p->owed++;
			q->extra_bytes += len;
			lost = false;
		} else if (!lost && p->passed >= q->options.gap && p->owed) {
			p->owed--;
			q->extra_bytes -= min(q->extra_bytes, len);
			lost = true;
		}
		p->passed = lost ? 0 : p->passed + 1;
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
MODULE_DESCRIPTION("Drop-tail with packets between any two drops of one port");
