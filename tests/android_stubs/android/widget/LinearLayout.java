package android.widget;

import android.content.Context;
import android.view.ViewGroup;

public class LinearLayout extends ViewGroup {
    public static final int VERTICAL = 1;

    public LinearLayout(Context context) { super(context); }
    public int getOrientation() { return 0; }
    public void setOrientation(int orientation) {}
}
