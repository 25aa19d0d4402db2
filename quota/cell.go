package quota

// view is a moment for which use is counted.
type view int

const (
	// charged counts the charges alone, as status tells it.
	charged view = iota
	// promised counts what will be so when those that leave have left: charges
	// without theirs, and what is claimed.
	promised
	// now and afterwards are the two, and what is withheld from everybody.
	now
	afterwards
	// nowToBorrow and afterwardsToBorrow are these, and what is withheld from those
	// who borrow.
	nowToBorrow
	afterwardsToBorrow

	views
)

// sight is what somebody sees: the use of now, and that of afterwards.
type sight struct{ now, afterwards view }

var (
	// within is what a job sees of which it stays within the nominal quota of its
	// ClusterQueue, toBorrow of what it borrows, and leftFor of what others have left
	// for it.
	within   = sight{now, afterwards}
	toBorrow = sight{nowToBorrow, afterwardsToBorrow}
	leftFor  = sight{charged, promised}
)

// These are the views in which something counts.
var (
	ofCharge      = []view{charged, now, nowToBorrow, promised, afterwards, afterwardsToBorrow}
	ofLeaving     = ofCharge[:3]
	ofClaim       = ofCharge[3:]
	fromAll       = []view{now, nowToBorrow, afterwards, afterwardsToBorrow}
	fromBorrowers = []view{nowToBorrow, afterwardsToBorrow}
	// rights is where a search takes jobs away: there it is measured who borrows how
	// much; rightsToBorrow has what those who borrow see beside it.
	rights         = fromAll[2:3]
	rightsToBorrow = fromAll[2:]
)

// cell is the quota and the use of one flavor and resource at one node of the
// tree. The cells of the same flavor and resource form a tree of their own.
// The arithmetic is Kueue's:
//
//	quota(ClusterQueue) = its nominal quota
//	quota(Cohort)       = its nominal quota + what its children lend
//	kept                = the part of quota that the lending limit keeps from the parent
//	lent                = quota - kept
//	spilled             = use beyond kept; it is the child's use of its parent
type cell struct {
	node   *node
	parent *cell
	// children are the cells whose parent this is, at where it lies among those
	// of its own.
	children []*cell
	at       int
	// listed says that the node's object names the cell.
	listed bool
	limits limits
	quota  amount
	used   [views]amount
	// ordered are, at a ClusterQueue, the jobs that have a charge in the cell in
	// the order in which they go; nil where inOrder has to sort them.
	ordered []*taking
}

// limits are what an object says of a cell.
type limits struct {
	nominal int64
	// borrowing and lending are noLimit where the object sets none. Both bound
	// the way to the parent, so they mean nothing at a root.
	borrowing, lending int64
}

const noLimit = -1

func (c *cell) kept() amount {
	if c.limits.lending == noLimit {
		return amount{}
	}
	return c.quota.minus(amountOf(c.limits.lending)).atLeastZero()
}

func (c *cell) lent() amount { return c.quota.minus(c.kept()) }

func (c *cell) spilled(v view) amount { return c.used[v].minus(c.kept()).atLeastZero() }

// keptFree is what is free of the part that the parent does not see.
func (c *cell) keptFree(v view) amount { return c.kept().minus(c.used[v]).atLeastZero() }

// available is how much more the node may use. It is negative where more is in
// use than the quota, as after an admin has lowered it.
func (c *cell) available(v view) amount {
	if c.parent == nil {
		return c.quota.minus(c.used[v])
	}
	fromParent := c.parent.available(v)
	if c.limits.borrowing != noLimit {
		most := c.lent().minus(c.spilled(v)).plus(amountOf(c.limits.borrowing))
		fromParent = smaller(fromParent, most)
	}
	return c.keptFree(v).plus(fromParent)
}

// potential is what would be available with nothing in use.
func (c *cell) potential() amount {
	if c.parent == nil {
		return c.quota
	}
	most := c.kept().plus(c.parent.potential())
	if c.limits.borrowing != noLimit {
		most = smaller(most, c.quota.plus(amountOf(c.limits.borrowing)))
	}
	return most
}

// exceeds says whether v more makes the node use more than its quota.
func (c *cell) exceeds(w view, v amount) bool { return c.quota.less(c.used[w].plus(v)) }

// sight is what a job of the ClusterQueue sees that needs so much of the cell.
func (c *cell) sight(v amount) sight {
	if c.exceeds(afterwards, v) {
		return toBorrow
	}
	return within
}

// lacks says that v more will not be there when those that leave have left.
func (c *cell) lacks(v amount) bool { return c.available(c.sight(v).afterwards).less(v) }

// shift changes quota and use of a node, and what its ancestors see of it.
func (c *cell) shift(quota amount, used [views]amount) {
	c.change(func() {
		c.quota = c.quota.plus(quota)
		for v := range used {
			c.used[v] = c.used[v].plus(used[v])
		}
	})
}

// use changes the use in some views.
func (c *cell) use(by amount, in ...view) {
	for _, v := range in {
		for c, by := c, by; c != nil && !by.zero(); c = c.parent {
			before := c.spilled(v)
			c.used[v] = c.used[v].plus(by)
			by = c.spilled(v).minus(before)
		}
	}
}

// set replaces what an object says of the cell.
func (c *cell) set(l limits, listed bool) {
	c.change(func() {
		c.quota = c.quota.plus(amountOf(l.nominal)).minus(amountOf(c.limits.nominal))
		c.limits, c.listed = l, listed
	})
}

// change runs do, which changes this cell alone, and passes on what that
// changes for the parent.
func (c *cell) change(do func()) {
	if c.parent == nil {
		do()
		return
	}
	lent, used := c.seen()
	do()
	lentNow, usedNow := c.seen()
	for v := range used {
		used[v] = usedNow[v].minus(used[v])
	}
	c.parent.shift(lentNow.minus(lent), used)
}

// seen is what the parent sees of the node.
func (c *cell) seen() (lent amount, used [views]amount) {
	for v := range used {
		used[v] = c.spilled(view(v))
	}
	return c.lent(), used
}

func (c *cell) link(parent *cell) {
	c.parent, c.at = parent, len(parent.children)
	parent.children = append(parent.children, c)
	parent.shift(c.seen())
}

func (c *cell) unlink() {
	lent, used := c.seen()
	for v := range used {
		used[v] = amount{}.minus(used[v])
	}
	c.parent.shift(amount{}.minus(lent), used)
	others := c.parent.children
	last := others[len(others)-1]
	others[c.at], last.at = last, c.at
	others[len(others)-1] = nil
	c.parent.children = others[:len(others)-1]
	c.parent = nil
}

// idle says that nothing is known of the cell.
func (c *cell) idle() bool {
	return len(c.children) == 0 && !c.listed && c.quota.zero() && c.used == [views]amount{}
}
