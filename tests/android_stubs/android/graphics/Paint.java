package android.graphics;

public class Paint {
    public enum Style { FILL, STROKE, FILL_AND_STROKE }

    public Paint() {}
    public int getColor() { return 0; }
    public void setColor(int color) {}
    public float getStrokeWidth() { return 0; }
    public void setStrokeWidth(float width) {}
    public Style getStyle() { return Style.FILL; }
    public void setStyle(Style style) {}
}
